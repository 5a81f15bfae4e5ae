"""The one event feed that every lens reads: a run's records, from its folder or its server, as updates."""
