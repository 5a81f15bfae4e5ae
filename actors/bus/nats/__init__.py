"""The bus over NATS JetStream. Nothing outside this package imports nats-py."""

from actors.bus.nats.bus import NatsBus, open_nats
from actors.bus.nats.measures import QueueDepth
from actors.bus.nats.options import NatsOptions

__all__ = ["NatsBus", "NatsOptions", "QueueDepth", "open_nats"]
