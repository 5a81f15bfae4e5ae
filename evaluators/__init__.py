"""Evaluation of candidates: tasks, languages, builds, checks and timing."""
