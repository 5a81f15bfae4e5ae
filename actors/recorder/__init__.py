"""The recorder actor."""

from actors.recorder.actor import record_past, record_run

__all__ = ["record_past", "record_run"]
