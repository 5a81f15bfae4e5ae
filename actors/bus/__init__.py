"""How actors talk: the `Bus` protocol and its implementations."""
