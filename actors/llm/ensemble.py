"""Several models as one: a question goes to the model of its role, and of several that write to the one it names."""

from __future__ import annotations

from collections.abc import Mapping

from actors.llm.base import Answer, Model, Request
from messages.base import ModelError


class Ensemble:
    """Who plans and who writes."""

    def __init__(self, planner: Model, coders: Mapping[str, Model]) -> None:
        """Take them over: they are closed with this one.

        Args:
            planner: answers the planner's questions.
            coders: by name, at least one. A question that names none goes to the first.
        """
        self._planner = planner
        self._coders = dict(coders)

    async def complete(self, request: Request) -> Answer:
        """See `Model.complete`.

        Raises:
            ModelError: as the model; permanent if a model is named that is not here: another coder has it.
        """
        return await self._of(request).complete(request)

    async def aclose(self) -> None:
        """See `Model.aclose`."""
        for model in {id(model): model for model in (self._planner, *self._coders.values())}.values():
            await model.aclose()

    def _of(self, request: Request) -> Model:
        if request.role == "planner":
            return self._planner
        if not request.model:
            return next(iter(self._coders.values()))
        found = self._coders.get(request.model)
        if found is None:
            here = ", ".join(self._coders)
            raise ModelError(f"model {request.model!r} is asked for, and this coder has {here}", permanent=True)
        return found
