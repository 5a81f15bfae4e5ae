"""The bus over NATS JetStream. Nothing outside this package imports nats-py."""

from actors.bus.nats.bus import NatsBus, QueueDepth, open_nats
from actors.bus.nats.names import NatsOptions

__all__ = ["NatsBus", "NatsOptions", "QueueDepth", "open_nats"]
