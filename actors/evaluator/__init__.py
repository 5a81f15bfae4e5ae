"""The evaluator actor."""

from actors.evaluator.actor import serve_evaluations

__all__ = ["serve_evaluations"]
