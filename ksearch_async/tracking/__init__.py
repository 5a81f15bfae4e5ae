"""Experiment trackers: each has a process of its own beside the search, which reads the run's journal and tells them.

The journal is the queue between the two. A tracker that is slow, away, broken or not installed is behind, or misses
something that is counted and said; the search never waits for one.
"""
