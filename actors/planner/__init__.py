"""The planner: one per run, the only writer of decisions."""

from actors.planner.actor import plan_run

__all__ = ["plan_run"]
