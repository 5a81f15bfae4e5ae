"""TritonBench's forms of candidates, in and out.

- `read_candidate(path, functions) -> Candidate`: a `.py` file, with or without a test after a line of `#`
- `read_predictions(path) -> (label, text) pairs`: the `.jsonl` that its scripts take, with `label` and `predict`
- `candidate_of(text, functions) -> Candidate`
- `export(candidate, test) -> str`: the file that its `0_call_acc` writes and `1_exe_acc` runs

Upstream rebuilds answers from their imports and functions before it runs them, and loses classes, constants and the
order of decorators. Here the text of the last fenced block, or the whole, is used unchanged.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile, TaskSpec

ENTRY_POINT = "ksearch_run"
MAIN_PATH = "candidate.py"
_SEPARATOR = "#" * 146
_LINE = re.compile(r"^#{100,}[ \t]*$", re.MULTILINE)
_FENCE = "```python"
_END_TOKENS = ("<|im_end|>", "<|EOT|>")
_MARK = "# What follows is the part that candidates get."
_BEGIN = "# From here on: how ksearch makes the test's calls."


class Prediction(msgspec.Struct, frozen=True):
    """One line of a file of answers."""

    label: str
    """Text of the gold, by which upstream finds the problem."""
    predict: str


def ending(functions: Sequence[str]) -> str:
    """Return the lines that a candidate file ends with."""
    table = ", ".join(f'"{name}": {name}' for name in functions)
    return f"{_BEGIN}\n{_replay_text()}\n\ndef {ENTRY_POINT}(calls):\n    return make_calls(calls, {{{table}}})\n"


def candidate_of(text: str, functions: Sequence[str]) -> Candidate:
    """Return the candidate in a text that defines the functions, without a test after a line of `#`."""
    found = _LINE.search(text)
    own = (text if found is None else text[: found.start()]).strip("\n")
    whole = own if _BEGIN in own else f"{own}\n\n\n{ending(functions)}"
    main = SourceFile(path=MAIN_PATH, text=whole.rstrip("\n") + "\n")
    return Candidate(language="python", entry_point=ENTRY_POINT, files=(main,))


def reference_candidate(task: TaskSpec) -> Candidate:
    """Return a problem's gold as a candidate of its task."""
    return candidate_of_text(task.files[0].text, task)


def candidate_of_text(text: str, task: TaskSpec, name: str = "") -> Candidate:  # noqa: ARG001 - its file is named
    """Return the candidate of a file in TritonBench's own form; lines of ours at its end stay."""
    functions: tuple[str, ...] = next(
        ast.literal_eval(node.value)
        for node in ast.parse(task.text).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FUNCTIONS"
    )
    return candidate_of(text, functions)


def read_candidate(path: Path, functions: Sequence[str]) -> Candidate:
    """Return the candidate of a file.

    Raises:
        ConfigError: it cannot be read.
    """
    return candidate_of(_read(path), functions)


def read_predictions(path: Path) -> tuple[Prediction, ...]:
    """Return the answers of a `.jsonl` file, without the text that models put around code.

    Raises:
        ConfigError: it cannot be read, or a line is not an answer.
    """
    found: list[Prediction] = []
    for number, line in enumerate(_read(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=Prediction)
        except msgspec.MsgspecError as error:
            raise ConfigError(f"{str(path)!r}, line {number}: {error}; expected label and predict") from error
        found.append(Prediction(label=_bare(entry.label), predict=_code(entry.predict)))
    return tuple(found)


def export(candidate: Candidate, test: str) -> str:
    """Return the one file that upstream's scripts accept: candidate, line, test."""
    own = candidate.files[0].text.partition(_BEGIN)[0].rstrip("\n")
    return f"{own}\n\n{_SEPARATOR}\n\n{test}"


def _replay_text() -> str:
    text = Path(__file__).with_name("replay.py").read_text(encoding="utf-8").partition(_MARK)[2]
    bare = re.sub(r"  # type: ignore.*$", "", text, flags=re.MULTILINE).strip("\n")
    return f"import torch\n\n\n{bare}\n"


def _code(answer: str) -> str:
    bare = _bare(answer)
    return bare.split(_FENCE)[-1].split("```")[0] if _FENCE in bare else bare


def _bare(text: str) -> str:
    for token in _END_TOKENS:
        text = text.replace(token, "")
    return text


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{str(path)!r} is not UTF-8 text (byte {error.start})") from error
