"""Shared worker code: taking jobs, heartbeats, fair shares, presence, and artifact transfer."""
