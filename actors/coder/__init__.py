"""The writer of candidates: one model call per attempt, stateless, any number of instances at once."""
