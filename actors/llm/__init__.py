"""The model gateway: one protocol, several dialects."""
