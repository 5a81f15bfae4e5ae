"""The dialect `replay`: a recorded run answers. A question that it was not asked is a miss, said with what changed.

Questions are known by role, rules and prompt, not by their ids: another run with the same questions gets the same
answers. Where one question was answered several times (extra samples, answers that were refused), each answer is given
once, in the recorded order, unless an id says which one is meant.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import anyio.lowlevel
import msgspec
import structlog

from actors.llm.base import Answer, Model, Request, Role, rules_digest
from messages.base import ModelError
from messages.events import CandidateWritten, EditsProposed
from messages.models import common_length

Answered: TypeAlias = CandidateWritten | EditsProposed
"""What a journal holds of an answer."""
NOT_RECORDED = "was not recorded"
"""In what is said of a miss that ends a run."""
_SHOWN = 100
_LEAD = 40
"""Characters shown before a difference."""

log = structlog.get_logger(__name__)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How a question differs from the one that was recorded in its place."""

    recorded_id: str
    """Of the question that it is compared with; empty: there is none like it."""
    parts: tuple[str, ...]
    """What changed: `rules`, or the headings of the prompt's parts."""
    recorded: str = ""
    """The first line of the prompt that differs, as it was."""
    asked: str = ""
    """The same as it is."""

    @property
    def words(self) -> str:
        """Say it in one line."""
        if not self.recorded_id:
            return "the recorded run has no question like it"
        line = f"; recorded {self.recorded!r}, now {self.asked!r}" if self.recorded != self.asked else ""
        return f"changed against {self.recorded_id}: {', '.join(self.parts)}{line}"


class _Kept(msgspec.Struct):
    event: Answered
    was_given: bool = False


class Recording:
    """The answers of one run."""

    def __init__(self, answers: Iterable[Answered]) -> None:
        """Take the answers in recorded order."""
        self._by_key: dict[str, list[_Kept]] = {}
        self._by_place: dict[tuple[Role, str], Answered] = {}
        self._prompts: dict[Role, list[Answered]] = {"planner": [], "coder": []}
        for event in answers:
            self._by_key.setdefault(_key_of(event), []).append(_Kept(event))
            self._by_place.setdefault((_role_of(event), _place(event.job_id)), event)
            self._prompts[_role_of(event)].append(event)

    def find(self, request: Request) -> Answered | None:
        """Return the recorded answer to a question; none if it was not asked."""
        kept = self._by_key.get(_key(request)) or self._by_key.get(_key(request, with_rules=False))
        if not kept:
            return None
        same = [one for one in kept if _place(one.event.job_id) == _place(request.request_id)]
        fresh = [one for one in kept if not one.was_given]
        chosen = (same or fresh or kept[-1:])[0]
        chosen.was_given = True
        return chosen.event

    def changes(self, request: Request) -> Changes:
        """Say how a question that was not asked differs from the one in its place, or from the most similar one."""
        there = self._by_place.get((request.role, _place(request.request_id))) or self._most_similar(request)
        if there is None:
            return Changes(recorded_id="", parts=())
        prompt, is_same_rules = _split(there, request)
        parts = [] if is_same_rules else ["rules"]
        parts += [_name(part, number) for number, part in enumerate(request.parts) if part not in prompt]
        if is_same_rules and not parts:
            parts = ["which parts there are"]
        recorded, asked = _first_difference(prompt, request.prompt)
        return Changes(recorded_id=there.job_id, parts=tuple(parts), recorded=recorded, asked=asked)

    def _most_similar(self, request: Request) -> Answered | None:
        """Return the recorded question that shares the longest beginning with this one; of several the first."""
        return max(
            self._prompts[request.role],
            key=lambda event: common_length(_split(event, request)[0], request.prompt),
            default=None,
        )


class ReplayModel:
    """Answers what a recorded run answered, at once and for nothing; usage is told as it was recorded."""

    def __init__(self, recording: Recording, *, beyond: Model | None = None) -> None:
        """Take a recording; `beyond` is asked what is not in it, None: such a question is an error."""
        self._recording = recording
        self._beyond = beyond
        self.hits = 0
        self.misses = 0

    async def complete(self, request: Request) -> Answer:
        """Answer one question.

        Raises:
            ModelError: it is not in the recording, and nobody else is to be asked; permanent.
        """
        await anyio.lowlevel.checkpoint()
        found = self._recording.find(request)
        if found is not None:
            self.hits += 1
            return answer_of(found)
        self.misses += 1
        changes = self._recording.changes(request)
        if self._beyond is None:
            said = f"replay: question {request.request_id} {NOT_RECORDED}: {changes.words}"
            raise ModelError(said, permanent=True)
        log.warning("not in the recorded run; asking the model", question=request.request_id, changes=changes.words)
        return await self._beyond.complete(request)

    async def aclose(self) -> None:
        """Release the other model's connections."""
        if self._beyond is not None:
            await self._beyond.aclose()


def answer_of(event: Answered) -> Answer:
    """Return a recorded answer as it came."""
    return Answer(
        text=event.answer,
        model=event.model,
        usage=event.usage,
        latency_s=event.latency_s,
        finish_reason=event.finish_reason,
        faults=event.faults,
    )


def _role_of(event: Answered) -> Role:
    return "planner" if isinstance(event, EditsProposed) else "coder"


def _place(job_id: str) -> str:
    """Return a job's place in its run: its id without the run's."""
    return job_id.rpartition("-")[2]


def _key(request: Request, *, with_rules: bool = True) -> str:
    if request.role == "coder":
        return _digest("coder", "", f"{request.system}\n\n{request.prompt}")
    return _digest("planner", rules_digest(request.system) if with_rules else "", request.prompt)


def _key_of(event: Answered) -> str:
    """Return by what a recorded question is known; a planner's of an older journal without its rules."""
    if isinstance(event, CandidateWritten):
        return _digest("coder", "", event.prompt)
    return _digest("planner", event.rules_digest, event.prompt)


def _digest(role: Role, rules: str, prompt: str) -> str:
    return blake2b(f"{role}|{rules}|{prompt}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def _split(event: Answered, request: Request) -> tuple[str, bool]:
    """Return a recorded prompt without its rules, and whether these are the question's."""
    if isinstance(event, EditsProposed):
        return event.prompt, event.rules_digest in ("", rules_digest(request.system))
    head = f"{request.system}\n\n"
    if event.prompt.startswith(head):
        return event.prompt[len(head) :], True
    # Rules of coders end where the task's text, the first part, begins.
    start = event.prompt.find(request.parts[0]) if request.parts else -1
    return event.prompt[max(start, 0) :], False


def _name(part: str, number: int) -> str:
    """Return what a part is called: its heading, or that it is the task."""
    heading = part.split("\n", 1)[0]
    if number == 0:
        return "task"
    return heading.lstrip("# ")[:_SHOWN] if heading.startswith("#") else f"part {number + 1}"


def _first_difference(recorded: str, asked: str) -> tuple[str, str]:
    """Return the first line that differs, on both sides, from a little before the difference on."""
    at = common_length(recorded, asked)
    start = max(recorded.rfind("\n", 0, at) + 1, at - _LEAD)
    return _line_from(recorded, start), _line_from(asked, start)


def _line_from(text: str, start: int) -> str:
    return text[start:].split("\n", 1)[0][:_SHOWN]
