"""The recorder actor."""

from actors.recorder.actor import record_run

__all__ = ["record_run"]
