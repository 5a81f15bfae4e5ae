"""The mistakes that models make, put into the rules' answers on purpose: what a search must live with.

Which answers are spoiled, and how, follows from seed, role and prompt alone, so a run can be repeated, and an answer
over HTTP is the built-in one. A prompt that complains of a mistake is another prompt, with a draw of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from hashlib import blake2b
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from actors.llm.base import Role

MistakeKind: TypeAlias = Literal[
    "does_not_build",
    "wrong_numbers",
    "malformed_json",
    "wrong_schema",
    "dead_node",
    "machine_field",
    "prose",
    "empty",
    "cut_off",
    "rambling",
    "thinks_aloud",
    "harmless_slips",
    "sloppy_blocks",
]
MISTAKES: Final[tuple[MistakeKind, ...]] = get_args(MistakeKind)
HARMLESS: Final[tuple[MistakeKind, ...]] = ("thinks_aloud", "harmless_slips", "sloppy_blocks")
"""Mistakes of form that cost no question: what is meant can be read."""
_ANYWHERE: Final[frozenset[MistakeKind]] = frozenset({"prose", "empty", "cut_off", "rambling", "thinks_aloud"})
_OF_ROLE: Final[dict[Role, frozenset[MistakeKind]]] = {
    "coder": _ANYWHERE | {"does_not_build", "wrong_numbers", "sloppy_blocks"},
    "planner": _ANYWHERE | {"malformed_json", "wrong_schema", "dead_node", "machine_field", "harmless_slips"},
}
RAMBLING_CHARS: Final = 200_000
"""More than any limit on an answer's parts, less than what the gateway takes for an answer without an end."""

_FENCE = re.compile(
    r"^(?P<open>`{3,}(?P<tag>\w*)[^\n]*)\n(?P<text>.*?)\n(?P<close>`{3,})[ \t]*$", re.DOTALL | re.MULTILINE
)
_NODE = re.compile(r"^n(\d+) < n\d+ \| ([a-z ]+) \|", re.MULTILINE)
_PROSE = (
    "The memory traffic of this program is what limits it. I would fuse the passes and keep the values in registers; "
    "shall I write it down for you?",
    "I have thought about this carefully and the code that I gave you before is already optimal.",
)


def most_kinds(kinds: Collection[MistakeKind]) -> int:
    """Return how many of these kinds fit the role that most of them fit."""
    return max(len(fitting.intersection(kinds)) for fitting in _OF_ROLE.values())


class Spoiled(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with a mistake in it, or without."""

    text: str
    finish_reason: str = "stop"
    mistake: MistakeKind | None = None


class Mistakes:
    """Chooses the answers to spoil, and spoils them."""

    def __init__(
        self, rate: float, *, seed: int = 0, kinds: Collection[MistakeKind] = MISTAKES, of_each: bool = False
    ) -> None:
        """Prepare the draws.

        Args:
            rate: share of answers with a mistake, 0 to 1; the kinds that fit the role are equally frequent.
            seed: of the draws.
            kinds: those that may be made. A role that none of them fits makes none.
            of_each: `rate` is the share of each kind that fits, not of all together.
        """
        self._rate = rate
        self._of_each = of_each
        self._seed = seed
        self._kinds = kinds

    def spoil(self, role: Role, prompt: str, answer: str) -> Spoiled:
        """Return the answer, spoiled if the prompt's draw says so and the answer has what the mistake takes."""
        fitting = [kind for kind in MISTAKES if kind in self._kinds and kind in _OF_ROLE[role]]
        digest = blake2b(f"{self._seed}|{role}|{prompt}".encode("utf-8", "replace"), digest_size=16).digest()
        chance, draw = int.from_bytes(digest[:8]) / 2**64, int.from_bytes(digest[8:])
        rate = self._rate * len(fitting) if self._of_each else self._rate
        if not fitting or chance >= rate:
            return Spoiled(text=answer)
        kind = fitting[draw % len(fitting)]
        text = _SPOILERS[kind](answer, prompt, draw // len(fitting))
        if text is None:
            return Spoiled(text=answer)
        return Spoiled(text=text, finish_reason="length" if kind == "cut_off" else "stop", mistake=kind)


def _prose(_answer: str, _prompt: str, draw: int) -> str:
    return _PROSE[draw % len(_PROSE)]


def _empty(_answer: str, _prompt: str, _draw: int) -> str:
    return ""


def _cut_off(answer: str, _prompt: str, draw: int) -> str:
    """Keep 30 to 80 % of the answer."""
    return answer[: len(answer) * (30 + draw % 51) // 100]


def _rambling(answer: str, _prompt: str, draw: int) -> str:
    """Talk for 200,000 characters: without an answer, or inside of it, where the program or the summary is."""
    talk = " ".join(_PROSE) + " "
    talk = (talk * (RAMBLING_CHARS // len(talk) + 1))[:RAMBLING_CHARS]
    fence = _FENCE.search(answer)
    if fence is None or draw % 2:
        return talk
    if fence["tag"] == "json":
        return _rewritten(answer, lambda script: script.update(summary=talk)) or talk
    mark = "# " if _is_python(fence) else "// "
    return answer[: fence.start("text")] + mark + talk + "\n" + answer[fence.start("text") :]


def _does_not_build(answer: str, _prompt: str, draw: int) -> str | None:
    fence = _FENCE.search(answer)
    if fence is None:
        return None
    rules = _PYTHON_SYNTAX if _is_python(fence) else _C_SYNTAX
    return _substituted(answer, fence, rules, draw)


def _wrong_numbers(answer: str, _prompt: str, draw: int) -> str | None:
    fence = _FENCE.search(answer)
    if fence is None:
        return None
    rules = _PYTHON_NUMBERS if _is_python(fence) else _C_NUMBERS
    return _substituted(answer, fence, rules, draw)


_Rules: TypeAlias = tuple[tuple[re.Pattern[str], str], ...]
_C_SYNTAX: Final[_Rules] = (
    (re.compile(r";(?=\n)"), ""),  # a semicolon is forgotten
    (re.compile(r"\}(?=\s*\Z)"), ""),  # the last brace is
    (re.compile(r"(?<=\bconst )float(?= )"), "floaty"),  # an undeclared type
)
_PYTHON_SYNTAX: Final[_Rules] = (
    (re.compile(r":(?=\n[ \t])"), ""),
    (re.compile(r"\)(?=\n)"), ""),
    (re.compile(r"^def (?=\w+\()", re.MULTILINE), "define "),
)
_C_NUMBERS: Final[_Rules] = (
    # A loop begins one too late, or ends one too early; a product becomes a sum. Never a loop's step: it might hang.
    (re.compile(r"(?P<kept>\bfor \((?:int|int64_t|size_t) \w+ = )0(?=;)"), r"\g<kept>1"),
    (re.compile(r"(?P<kept>\bfor \((?:int|int64_t|size_t) \w+ = 0; \w+ < \w+)(?=;)"), r"\g<kept> - 1"),
    (
        re.compile(r"(?P<kept>^ *const (?:float|double) \w+ = \w+(?:\[\w+\])?) \*(?= \w+(?:\[\w+\])?;$)", re.MULTILINE),
        r"\g<kept> +",
    ),
)
_PYTHON_NUMBERS: Final[_Rules] = (
    (re.compile(r"\btl\.sum\("), "tl.max("),
    (re.compile(r"\btl\.exp\("), "tl.exp2("),
    (re.compile(r"(?P<kept>^ +\w+ = \w+) \*(?= \w+$)", re.MULTILINE), r"\g<kept> +"),
)


def _substituted(answer: str, fence: re.Match[str], rules: _Rules, draw: int) -> str | None:
    """Apply one of the rules that match in the fence, at one of its places; None if none does."""
    code = fence["text"]
    found = [(places, new) for pattern, new in rules if (places := list(pattern.finditer(code)))]
    if not found:
        return None
    places, new = found[draw % len(found)]
    place = places[draw // len(found) % len(places)]
    spoiled = code[: place.start()] + place.expand(new) + code[place.end() :]
    return answer[: fence.start("text")] + spoiled + answer[fence.end("text") :]


def _is_python(fence: re.Match[str]) -> bool:
    return fence["tag"] in {"python", "py", "triton"}


def _malformed_json(answer: str, _prompt: str, draw: int) -> str | None:
    """Write JSON as people do who think of Python or JavaScript."""
    ways: tuple[Callable[[str], str], ...] = (
        lambda text: text.replace('"', "'"),
        lambda text: re.sub(r'"(op|summary)":', r"\1:", text),
    )
    spoiled = ways[draw % len(ways)](answer)
    return spoiled if spoiled != answer else None


def _wrong_schema(answer: str, _prompt: str, draw: int) -> str | None:
    """Write JSON that is none of a script's: another shape, another type, a value out of its range, another word."""
    edit = {"op": "insert", "parent": "n0", "title": "Fuse", "description": "", "difficulty": 2, "priority": 0.5}
    edits: tuple[object, ...] = (
        {"first": edit},
        [{**edit, "priority": "high"}],
        [{**edit, "difficulty": 9}],
        [{**edit, "op": "add"}],
        [{name: value for name, value in edit.items() if name != "title"}],
        [{**edit, "parent": None}],
    )
    return _rewritten(answer, lambda script: script.update(edits=edits[draw % len(edits)]))


def _dead_node(answer: str, prompt: str, draw: int) -> str | None:
    """Build on a node that was pruned, or name one that never was."""
    nodes = [(int(number), state.strip()) for number, state in _NODE.findall(prompt)]
    missing = f"n{max((number for number, _ in nodes), default=0) + 7}"
    edits: list[dict[str, object]] = [
        {"op": "update", "node": missing, "priority": 0.9},
        *(
            {
                "op": "insert",
                "parent": node,
                "title": "Go on from here",
                "description": "Carry the idea further.",
                "difficulty": 2,
                "priority": 0.6,
            }
            for node in (missing, *(f"n{number}" for number, state in nodes if state == "pruned"))
        ),
    ]
    return _rewritten(answer, lambda script: script.setdefault("edits", []).append(edits[draw % len(edits)]))


def _machine_field(answer: str, _prompt: str, draw: int) -> str | None:
    """Write what only the machine may: a state, a result, a count."""
    fields: tuple[tuple[str, object], ...] = (("state", "closed"), ("best", 3.2), ("tries", 0), ("node_id", "n99"))
    name, value = fields[draw % len(fields)]

    def claim(script: dict[str, Any]) -> None:
        edits = script.get("edits")
        (edits[draw // len(fields) % len(edits)] if edits else script)[name] = value

    return _rewritten(answer, claim)


_MARKS: Final = (
    ("<think>\n", "\n</think>\n\n"),  # Qwen3, MiniMax
    ("", "\n</think>\n\n"),  # DeepSeek-R1, QwQ: the template opens
    ("<think>", "</think>"),  # GLM
    (
        "<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
    ),  # gpt-oss
    ("[THINK]", "[/THINK]"),  # Magistral
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>\n\n", "\n\n<|end_of_thought|>\n\n"),
)
_DRAFT: Final = """```json
{"summary": "A draft.", "edits": [{"op": "insert", "parent": "n0", "title": "A draft that is not the answer",
 "description": "", "difficulty": 1, "priority": 1.0}]}
```"""


def _thinks_aloud(answer: str, prompt: str, draw: int) -> str:
    """Put reasoning with a draft before the answer, in the marks of one of the families of models."""
    opening, closing = _MARKS[draw % len(_MARKS)]
    fence = _FENCE.search(answer)
    if fence is None or fence["tag"] == "json":
        draft = _DRAFT
    else:
        note = ("# a draft\n" if _is_python(fence) else "// a draft\n") * 40
        code = _does_not_build(answer, prompt, draw // len(_MARKS)) or answer
        draft = code[: fence.start("text")] + note + code[fence.start("text") :]
    doubt = "Wait, that is not right: the sum has another order there. Let me look at the sizes again. " * 20
    return f"{opening}Okay, let me think. A first try:\n\n{draft}\n\n{doubt}\nSo I change it.{closing}{answer}"


def _harmless_slips(answer: str, _prompt: str, draw: int) -> str | None:
    """Write a script that leaves no doubt about what is meant, and is not what the format says."""
    slips: tuple[Callable[[dict[str, Any]], dict[str, object]], ...] = (
        lambda edit: {"difficulty": float(edit["difficulty"])},
        lambda edit: {"difficulty": str(edit["difficulty"])},
        lambda _: {"merge": None, "key": None},
        lambda _: {"rationale": "It is what limits the program."},
        lambda edit: {"title": f"{edit['title']} {'as the measurements suggest ' * 5}"},
    )

    def slip(script: dict[str, Any]) -> None:
        for number, edit in enumerate(script.get("edits", ())):
            chosen = slips[(draw // 3 + number) % len(slips)] if edit["op"] == "insert" else slips[3]
            edit.update(chosen(edit))

    spoiled = _rewritten(answer, slip)
    if spoiled is None or draw % 3 == 0:
        return spoiled
    if draw % 3 == 1:
        return re.sub(r"\}(?=\s*\n`{3})", ",}", spoiled, count=1)
    return spoiled.replace('"edits":', '// as discussed\n"edits":', 1)


def _sloppy_blocks(answer: str, prompt: str, draw: int) -> str | None:
    """Answer with a search/replace block against the base code, with other blanks than are there."""
    fence, base = _FENCE.search(answer), _FENCE.search(prompt, max(0, prompt.find("\n# Base code\n")))
    if fence is None or base is None or "\n# Base code\n" not in prompt or base["tag"] != fence["tag"]:
        return None
    old, new = base["text"].split("\n"), fence["text"].split("\n")
    if old == new or len(list(_FENCE.finditer(answer))) > 1:
        return None
    first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    rest = min(len(old), len(new)) - first
    last = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    first = max(0, first - 2)
    if not any(line.strip() for line in old[first : len(old) - last]):
        return None
    indent = "    " if draw % 2 else ""
    blanks = "  " if draw % 3 else ""
    search, replace = (
        "\n".join(indent + line + blanks for line in lines[first : len(lines) - last]) for lines in (old, new)
    )
    block = f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"
    return f"{answer[: fence.start('text')]}{block}\n{answer[fence.start('close') :]}"


def _rewritten(answer: str, change: Callable[[dict[str, Any]], None]) -> str | None:
    """Change the script in the answer's fence; None if there is none."""
    fence = _FENCE.search(answer)
    if fence is None:
        return None
    script = json.loads(fence["text"])
    change(script)
    text = json.dumps(script, ensure_ascii=False)
    return answer[: fence.start("text")] + text + answer[fence.end("text") :]


_SPOILERS: Final[dict[MistakeKind, Callable[[str, str, int], str | None]]] = {
    "does_not_build": _does_not_build,
    "wrong_numbers": _wrong_numbers,
    "malformed_json": _malformed_json,
    "wrong_schema": _wrong_schema,
    "dead_node": _dead_node,
    "machine_field": _machine_field,
    "prose": _prose,
    "empty": _empty,
    "cut_off": _cut_off,
    "rambling": _rambling,
    "thinks_aloud": _thinks_aloud,
    "harmless_slips": _harmless_slips,
    "sloppy_blocks": _sloppy_blocks,
}
