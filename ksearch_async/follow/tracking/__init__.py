"""Experiment trackers: each runs in a process of its own and reads the run's journal."""
