"""The planner's model: requests edits and parses the answer as an edit script.

The last usable JSON object outside marked reasoning counts. Harmless mistakes are corrected and noted: trailing commas,
comments and line breaks in strings; numbers as text, whole numbers with a decimal point, `null` for an optional field,
one string for a list, upper-case `op`, long titles; an object of one field around the script; unknown fields.

Fields that the machine owns are refused, since writing them shows a false belief about the search. An unreadable edit
is omitted, with the reason; a script without a readable edit is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import anyio
import msgspec
import structlog

from actors.llm.answer_text import CUT_IN_REASONING, JsonEnding, OutsideReasoning, split_reasoning
from actors.llm.base import Answer, Model, Request, rules_digest
from actors.llm.features import answer_schema
from actors.planner.core.state import Node
from actors.worker.work import MAX_ATTEMPTS, delay_s
from messages.base import ModelError, copied
from messages.codec import CodecError, decode_script
from messages.edits import Edit, EditScript, Insert, Proposal, Prune, Refusal, Split, Update
from messages.events import EditsProposed, JobLost

MAX_TITLE_CHARS: Final = 120
_MAX_UNMATCHED: Final = 64
"""Number of unclosed braces after which an answer is given up: each costs a pass over the remaining text."""
_FIELD: Final = re.compile(r'"(?:edits|summary|open_questions)"\s*:')
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}]', re.DOTALL)
_SLIP: Final = re.compile(
    r'(?P<text>"(?:[^"\\]|\\.)*")|(?P<comment>//[^\n]*|/\*.*?\*/)|,(?=(?:\s|//[^\n]*\n|/\*.*?\*/)*[}\]])', re.DOTALL
)
_NUMBER: Final = re.compile(r"\s*\d+(?:\.\d+)?x?\s*")
_UNBROKEN: Final = str.maketrans({"\r": "", "\n": "\\n", "\t": "\\t"})
_EDITS: Final[dict[str, type[msgspec.Struct]]] = {"insert": Insert, "update": Update, "prune": Prune, "split": Split}
_BELIEFS: Final = frozenset({"title", "description", "difficulty", "priority", "expected_gain"})
MACHINE_FIELDS: Final = (frozenset(Node.__struct_fields__) - _BELIEFS) | frozenset(
    {"id", "status", "result", "results", "score", "speedup", "credit", "latency_us", "visits", "attempts", "version"}
)
"""Node fields that only the machine writes, and other names for them."""


class ReadScript(NamedTuple):
    """A parsed answer."""

    script: EditScript | None
    complaint: str
    """The mistake and how to correct it; empty if there is a script."""
    notes: tuple[str, ...] = ()
    """Harmless mistakes that were corrected."""
    unread: tuple[Refusal, ...] = ()
    """Omitted edits, by their positions in the answer."""


def parse_script(text: str) -> tuple[EditScript | None, str]:
    """Find the edit script in an answer; see `read_script`."""
    return read_script(text)[:2]


def read_script(text: str) -> ReadScript:
    """Find the edit script in an answer: the last readable JSON object with a script field, fenced or not.

    If no object can be read, the complaint is about the last one.
    """
    spoken = split_reasoning(text)
    refused: ReadScript | None = None
    for found in reversed(_objects(spoken.answer)):
        if _FIELD.search(found) is None:
            continue
        read = _read(found)
        if read.script is not None:
            return read
        refused = refused or read
    if refused is not None or spoken.is_open:
        return refused or ReadScript(None, CUT_IN_REASONING)
    if "{" in spoken.answer:
        cut = 'the answer holds no complete JSON object with "edits": it was cut off, or its braces do not match'
        return ReadScript(None, cut)
    said = " ".join(spoken.answer.split())[:300]
    return ReadScript(None, f"the answer holds no JSON object; it said: {said!r}" if said else "the answer is empty")


def _read(found: str) -> ReadScript:
    try:
        return ReadScript(decode_script(found), "")
    except CodecError as error:
        complaint = _explained(str(error))
    mended = _SLIP.sub(lambda slip: (slip["text"] or "").translate(_UNBROKEN), found)
    notes = [] if mended == found else ["its JSON was mended: trailing commas, comments, or line breaks in strings"]
    try:
        script = msgspec.json.decode(mended)
    except (msgspec.DecodeError, RecursionError):
        return ReadScript(None, complaint)
    return _Mending(notes).script(script)


class _Mending:
    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def script(self, given: dict[str, Any]) -> ReadScript:
        (name, inner), *others = given.items()
        if not others and isinstance(inner, dict) and name not in EditScript.__struct_fields__:
            self._notes.append(f"the script was inside of {name!r}")
            given = inner
        edits, unread = list[Edit](), list[Refusal]()
        listed = given.get("edits")
        for index, edit in enumerate(listed if isinstance(listed, list) else ()):
            try:
                edits.append(msgspec.convert(self._edit(edit, f"edits[{index}]"), Edit))
            except (msgspec.ValidationError, CodecError) as error:
                unread.append(Refusal(index=index, reason=_explained(_placed(str(error), index))))
        try:
            fields = self._fields(given, EditScript, "the script")
            script = msgspec.convert({**fields, **({"edits": edits} if isinstance(listed, list) else {})}, EditScript)
        except (msgspec.ValidationError, CodecError) as error:
            return ReadScript(None, _explained(str(error)))
        if unread and not edits:
            return ReadScript(None, "; ".join(refusal.reason for refusal in unread))
        return ReadScript(script, "", tuple(self._notes), tuple(unread))

    def _edit(self, given: object, where: str) -> object:
        if not isinstance(given, dict):
            return given
        op = given.get("op")
        kind = _EDITS.get(op.strip().lower()) if isinstance(op, str) else None
        if kind is None:
            return given
        fields = self._fields(given, kind, where)
        if isinstance(parts := fields.get("into"), list):
            fields["into"] = [
                self._fields(part, Proposal, f"{where}.into[{number}]") if isinstance(part, dict) else part
                for number, part in enumerate(parts)
            ]
        return {**fields, "op": str(op).strip().lower()}

    def _fields(self, given: Mapping[str, Any], kind: type[msgspec.Struct], where: str) -> dict[str, Any]:
        """Return the values for a struct's fields, corrected. Raises `CodecError` for a field that the machine owns."""
        known = {field.name: field for field in msgspec.structs.fields(kind)}
        unknown = [name for name in given if name not in known and name != kind.__struct_config__.tag_field]
        if owned := [name for name in unknown if name in MACHINE_FIELDS]:
            raise CodecError(f"Object contains unknown field `{owned[0]}` - at `$`")
        self._notes += [f"{where}: the field {name[:40]!r} was left out" for name in unknown]
        fields: dict[str, Any] = {}
        for name, value in given.items():
            if name not in known or (value is None and not known[name].required):
                continue
            fields[name] = _MENDERS[name](value) if name in _MENDERS else value
            if fields[name] is not value:
                self._notes.append(f"{where}: {name!r} was put right")
        return fields


def _title(value: object) -> object:
    if not isinstance(value, str) or len(value) <= MAX_TITLE_CHARS:
        return value
    beginning = value[: MAX_TITLE_CHARS - 2]
    return f"{beginning.rpartition(' ')[0] or beginning} …"


def _number(value: object) -> object:
    return float(value.strip().removesuffix("x")) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _whole_number(value: object) -> object:
    number = _number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else value


def _list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_MENDERS: Final[dict[str, Callable[[object], object]]] = {
    "title": _title,
    "difficulty": _whole_number,
    "priority": _number,
    "expected_gain": _number,
    "open_questions": _list,
}


def _placed(error: str, index: int) -> str:
    place = f"$.edits[{index}]"
    return error.replace("`$", f"`{place}") if "`$" in error else f"{error} - at `{place}`"


def _objects(text: str) -> list[str]:
    """Return the outermost balanced `{…}` of a text, respecting quotes and escapes."""
    found: list[str] = []
    position = text.find("{")
    unmatched = 0
    while position >= 0 and unmatched < _MAX_UNMATCHED:
        end = _end_of_object(text, position)
        if end is None:
            unmatched += 1
            position = text.find("{", position + 1)
            continue
        found.append(text[position:end])
        position = text.find("{", end)
    return found


def _end_of_object(text: str, start: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] == "{":
            depth += 1
        elif token[0] == "}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _explained(error: str) -> str:
    if "unknown field" in error:
        return f"{error}: ids, states, results and counts are not yours to write; use the fields of the answer format"
    if "Invalid value" in error and "op" in error:
        return f"{error}: `op` is one of insert, update, prune, split"
    return error


_SCHEMA = answer_schema(EditScript)

log = structlog.get_logger(__name__)


def read_proposal(question: Request, answer: Answer) -> EditsProposed:
    """Return the event for an answer to the planner's question. Pure, so replays parse it identically."""
    return copied(
        EditsProposed,
        answer,
        **read_script(answer.text)._asdict(),
        job_id=question.request_id,
        prompt=question.prompt,
        prompt_bytes=len(f"{question.system}\n\n{question.prompt}".encode()),
        rules_digest=rules_digest(question.system),
        answer=answer.text,
    )


def _ending() -> OutsideReasoning:
    return OutsideReasoning(lambda: JsonEnding(_is_usable))


def _is_usable(text: str) -> bool:
    read = read_script(text)
    return read.script is not None and not read.unread


class Adviser:
    """Asks the planner's questions, one at a time except just after a run was resumed."""

    def __init__(self, model: Model, *, was_answered: bool) -> None:
        """Set up; `was_answered`: the run has received an answer before, so its endpoint works."""
        self._model = model
        self._was_answered = was_answered

    async def propose(self, question: Request) -> EditsProposed | JobLost:
        """Return the answer to a question: an edit script, a complaint about the answer, or a failure.

        If the endpoint has answered before, a failed question is asked again under the same id, as workers do.
        Otherwise the failure is reported at once, so that a run that cannot begin says so soon.
        """
        asked = msgspec.structs.replace(question, ending=_ending, schema=_SCHEMA)
        attempt = 0
        while True:
            attempt += 1
            try:
                answer = await self._model.complete(asked)
            except ModelError as error:
                if error.permanent or attempt >= MAX_ATTEMPTS or not self._was_answered:
                    permanent, faults = error.permanent, error.faults
                    return JobLost(
                        job_id=question.request_id, kind="plan", error=str(error), permanent=permanent, faults=faults
                    )
                log.info("planner's question failed", job=question.request_id, attempt=attempt, error=str(error))
                await anyio.sleep(delay_s(attempt))
            else:
                self._was_answered = True
                return read_proposal(question, answer)
