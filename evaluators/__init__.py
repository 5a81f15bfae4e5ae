"""The value of a candidate: tasks, languages, builds, checks and timing."""
