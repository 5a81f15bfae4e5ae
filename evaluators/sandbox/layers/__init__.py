"""The layers of the sandbox, each with a NAME and `apply`."""
