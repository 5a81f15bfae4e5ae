"""Errors by boundary: who broke what. Verdicts on candidates are data, not errors."""

from __future__ import annotations

from messages.faults import EndpointFault


class KsearchError(Exception):
    """Base of all errors that ksearch raises on purpose."""


class ConfigError(KsearchError):
    """The user's input cannot be used; the text says what to change. Exit code 2."""


class ProtocolError(KsearchError):
    """A peer broke the contract: an answer to a question that was never asked."""


class BoundaryError(KsearchError):
    """Something outside failed."""


class ModelError(BoundaryError):
    """The model's endpoint failed. `permanent` if trying again cannot help; `faults` are the tries that failed."""

    def __init__(self, text: str, *, permanent: bool = False, faults: tuple[EndpointFault, ...] = ()) -> None:
        super().__init__(text)
        self.permanent = permanent
        self.faults = faults


class EvaluatorError(BoundaryError):
    """Builder or evaluator failed; never the candidate's fault. `permanent` if trying again here cannot help."""

    def __init__(self, text: str, *, permanent: bool = False) -> None:
        super().__init__(text)
        self.permanent = permanent


class BusError(BoundaryError):
    """The bus or its store failed."""
