"""A decision in the making: facts, and the state that they lead to."""

from __future__ import annotations

from actors.planner.core.evolve import evolve
from actors.planner.core.state import SearchState
from messages.facts import Fact


class Step:
    """Collects the facts of one decision; `state` is always the state after them."""

    def __init__(self, state: SearchState) -> None:
        self.state = state
        self.facts: list[Fact] = []

    def take(self, fact: Fact) -> None:
        """Add a fact."""
        self.state = evolve(self.state, fact)
        self.facts.append(fact)

    def job_id(self, kind: str) -> str:
        """Return the next job id: unique in all runs, and a message id on the bus."""
        return f"{self.state.run_id}-{kind}{self.state.issued + 1}"

    def branch_id(self) -> str:
        """Return the next branch id, unique in the run."""
        return f"b{self.state.issued + 1}"
