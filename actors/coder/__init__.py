"""Who writes candidates: one model call per attempt, stateless, any number at once."""
