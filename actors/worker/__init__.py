"""The base of all workers: taking jobs, heartbeats, fair shares, presence, and artifacts on their way."""
