"""Many hosts: signing in, nodes, runs over NATS, stand-by planners, and the status of a server."""
