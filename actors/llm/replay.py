"""The dialect `replay`: a recorded run answers. A question that was not recorded is a miss, reported with its changes.

Questions are known by role, rules and prompt, not by id. A question answered several times (extra samples, refused
answers) gets each answer once, in recorded order, unless its id says which.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TypeAlias

import anyio.lowlevel
import msgspec
import structlog

from actors.llm.base import Answer, Model, Request, Role, rules_digest
from messages.base import ModelError, copied
from messages.events import CandidateWritten, EditsProposed
from messages.models import common_length

Answered: TypeAlias = CandidateWritten | EditsProposed
"""A journal's record of an answer."""
NOT_RECORDED = "was not recorded"
"""Part of the error for a miss."""
_SHOWN = 100
_LEAD = 40
"""Characters shown before a difference."""

log = structlog.get_logger(__name__)


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Differences between a question and the recorded one in its place."""

    recorded_id: str
    """Id of the recorded question that it is compared with; empty: there is none."""
    parts: tuple[str, ...]
    """`rules`, or the headings of the changed parts of the prompt."""
    recorded: str = ""
    """The first different line of the prompt as recorded."""
    asked: str = ""
    """The same line now."""

    @property
    def words(self) -> str:
        """The differences in one line."""
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
        """Return the recorded answer to a question; None if the question was not recorded."""
        kept = self._by_key.get(_key(request)) or self._by_key.get(_key(request, with_rules=False))
        if not kept:
            return None
        same = [one for one in kept if _place(one.event.job_id) == _place(request.request_id)]
        fresh = [one for one in kept if not one.was_given]
        chosen = (same or fresh or kept[-1:])[0]
        chosen.was_given = True
        return chosen.event

    def changes(self, request: Request) -> Changes:
        """Compare a question that was not recorded with the one in its place, or with the most similar one."""
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
        return max(
            self._prompts[request.role],
            key=lambda event: common_length(_split(event, request)[0], request.prompt),
            default=None,
        )


class ReplayModel:
    """Answers from a recorded run, at once and at no cost; usage is as recorded."""

    def __init__(self, recording: Recording, *, beyond: Model | None = None) -> None:
        """Begin with a recording; `beyond` answers missing questions, which are errors without it."""
        self._recording = recording
        self._beyond = beyond
        self.hits = 0
        self.misses = 0

    async def complete(self, request: Request) -> Answer:
        """Answer one question; a permanent `ModelError` if it was not recorded and no other model may answer."""
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
    """Return a recorded answer unchanged."""
    return copied(Answer, event, text=event.answer)


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
    """Return the key of a recorded question; a planner's in an older journal has no rules."""
    if isinstance(event, CandidateWritten):
        return _digest("coder", "", event.prompt)
    return _digest("planner", event.rules_digest, event.prompt)


def _digest(role: Role, rules: str, prompt: str) -> str:
    return blake2b(f"{role}|{rules}|{prompt}".encode("utf-8", "replace"), digest_size=16).hexdigest()


def _split(event: Answered, request: Request) -> tuple[str, bool]:
    """Return a recorded prompt without its rules, and True if the rules are the question's."""
    if isinstance(event, EditsProposed):
        return event.prompt, event.rules_digest in ("", rules_digest(request.system))
    head = f"{request.system}\n\n"
    if event.prompt.startswith(head):
        return event.prompt[len(head) :], True
    # Rules of coders end where the task's text, the first part, begins.
    start = event.prompt.find(request.parts[0]) if request.parts else -1
    return event.prompt[max(start, 0) :], False


def _name(part: str, number: int) -> str:
    heading = part.split("\n", 1)[0]
    if number == 0:
        return "task"
    return heading.lstrip("# ")[:_SHOWN] if heading.startswith("#") else f"part {number + 1}"


def _first_difference(recorded: str, asked: str) -> tuple[str, str]:
    at = common_length(recorded, asked)
    start = max(recorded.rfind("\n", 0, at) + 1, at - _LEAD)
    return _line_from(recorded, start), _line_from(asked, start)


def _line_from(text: str, start: int) -> str:
    return text[start:].split("\n", 1)[0][:_SHOWN]
