"""Readers beside a run: experiment trackers, notices, metrics, logs and traces."""
