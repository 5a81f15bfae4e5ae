"""What all workers share: taking jobs, heartbeats, fair shares, presence, and artifacts on their way."""
