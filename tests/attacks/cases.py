"""The collection: candidates that cheat, that are broken, and that are honest but odd, one small source file each.

The first lines of a file are its header, one `key: value` per comment line:

    class:      which mechanism, by the ids of docs/threat-model.md (A2, B3, C1, …; `faulty`, `honest`)
    mechanism:  one line
    expect:     what must come of it, see `EXPECTATIONS`
    reason:     (optional) a regular expression that the verdict's reason must contain
    task:       (optional) of `TASKS`; else `small`
    open:       (for now) whose part is missing, `A: …`: the test is a strict xfail until it is there
    naive:      (cheats) how a naive judge is fooled by it, see `tests/attacks/naive.py`; `by hand: …` where it is told
    file:       (optional) its file's name

Escapes are written as canaries: a candidate that computes the right thing if and only if its escape worked, and
returns 97 otherwise. So a verdict that says *crashed, returned 97* proves that the way was closed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from messages.base import Language
from messages.tasks import Candidate, SourceFile, TaskRules, TaskSpec
from messages.verdicts import Measured, Verdict, credit_of, fate_of, reason_of
from tests.evaluators.words import SMALL_TASK

CANDIDATES = Path(__file__).with_name("candidates")

Places: TypeAlias = dict[str, str]
"""What `@NAME@` in a source stands for: paths and ports that the test has laid out."""

TINY_TASK = replace(
    SMALL_TASK,
    name="tiny",
    text=SMALL_TASK.text.replace("torch.randn(columns)", "torch.randn(columns, dtype=torch.float64)")
    .replace("return x *", "return 0.001 * x *")
    .replace("torch.rand(64, 256)", "torch.rand(64, 256, dtype=torch.float64)"),
)
"""In double precision, with outputs below 0.001: what an absolute tolerance of 0.01 cannot see."""

INFINITE_TASK = replace(
    SMALL_TASK,
    name="infinite",
    text=SMALL_TASK.text.replace("return x * self.weight /", "return torch.log(torch.relu(x - 0.5)) + self.weight /"),
)
"""Half of the outputs are -inf."""

ROLL_TASK = replace(
    SMALL_TASK,
    name="roll",
    text=SMALL_TASK.text.replace(
        "return x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))", "return x.roll(1, 0)"
    ).replace("torch.rand(64, 256)", "torch.rand(4096, 1024)"),
)
"""Moves 16 MiB and computes nothing: what a kernel of an operating system can do as well."""

PRODUCT_TASK = TaskSpec(
    name="product",
    source="kernelbench",
    text="""
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, weight):
        return x @ weight


def get_inputs():
    return [torch.rand(96, 160), torch.rand(160, 96)]


def get_init_inputs():
    return []
""",
)
"""What libraries are best at."""

SILU_TASK = replace(
    PRODUCT_TASK,
    name="silu",
    text=PRODUCT_TASK.text.replace("(self, x, weight)", "(self, x)")
    .replace("return x @ weight", "return nn.functional.silu(x)")
    .replace("[torch.rand(96, 160), torch.rand(160, 96)]", "[torch.rand(512, 1024)]"),
)
"""Elementwise only."""

NORMED_TASK = replace(
    SMALL_TASK,
    name="normed",
    text=SMALL_TASK.text.replace(
        "super().__init__()", "super().__init__()\n        self.norm = nn.BatchNorm1d(columns)"
    )
    .replace(
        "def forward",
        "def training_only(self, x):\n        return nn.functional.dropout(x, 0.5, self.training)\n\n    def forward",
    )
    .replace("return x *", "return self.training_only(self.norm(x)) *"),
)
"""Random in training mode, so judged in eval mode, with a new model's statistics: its normalisation does nothing."""

LEARNING_TASK = replace(
    SMALL_TASK,
    name="learning",
    text=SMALL_TASK.text.replace(
        "self.weight = nn.Parameter(1 + 0.1 * torch.randn(columns))", "self.norm = nn.BatchNorm1d(columns)"
    ).replace("x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))", "self.norm(x)"),
)
"""In training mode: each call of the reference changes what its normalisation has seen."""

_SHAPED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, more=None, temperature=None):
        RETURN


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return []
"""


def _shaped(name: str, returned: str, inputs: str = "torch.randn(64, 256)") -> TaskSpec:
    text = _SHAPED.replace("RETURN", f"return {returned}").replace("INPUTS", inputs)
    return TaskSpec(name=name, source="kernelbench", text=text)


CENTRED_TASK = _shaped("centred", "(x - x.mean(-1, True)) / (x.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()")
"""A variance: one pass over data whose mean is large against its spread loses it."""

SOFT_TASK = _shaped("soft", "torch.softmax(x, dim=-1)")
"""A maximum: one that starts at 0 is wrong where everything lies far below."""

TEMPERED_TASK = _shaped(
    "tempered",
    "torch.where(more, x, 0.0).abs() / temperature",
    "torch.randn(64, 256), torch.arange(256).lt(200).expand(64, 256).contiguous(), torch.tensor(2.0)",
)
"""Its mask and its temperature are the same in every draw."""
INDEXED_TASK = _shaped("indexed", "x.abs()[:, more]", "torch.randn(64, 256), torch.arange(256).flip(0)")
"""Its indices are the same in every draw, and others are not known to be valid."""

SINGLE_TASK = replace(SMALL_TASK, name="single", rules=TaskRules(threads=1))
"""On one core."""

TASKS = {
    "small": SMALL_TASK,
    "single": SINGLE_TASK,
    "tiny": TINY_TASK,
    "infinite": INFINITE_TASK,
    "roll": ROLL_TASK,
    "product": PRODUCT_TASK,
    "silu": SILU_TASK,
    "normed": NORMED_TASK,
    "learning": LEARNING_TASK,
    "centred": CENTRED_TASK,
    "soft": SOFT_TASK,
    "tempered": TEMPERED_TASK,
    "indexed": INDEXED_TASK,
}

FATES = {"wrong", "crashed", "rejected", "quarantined", "timed_out", "did_not_build"}
HELD = {"measured", "unstable", "outpaced"}
"""Correct, whatever its speed: how steady that can be told depends on the host's other work."""

EXPECTATIONS = {
    "denied": "any verdict without credit",
    "correct": "found correct and measured, if the host is quiet enough",
    "harmless": "correct or refused; what it tried had no effect: nothing is left, nothing was seen",
    "slow": "it stalls by design, so only a lie could make it faster than the reference: no credit above 1",
    **{fate: f"the verdict `{fate}`" for fate in FATES | HELD},
}
"""An expectation is one of these, or several fates joined by `|`."""

_KEY = re.compile(r"^(?://|#) ?([a-z]+): *(.*)$")
_SUFFIXES = {".cpp", ".cu", ".py"}
_SHARED: dict[str, str] = {
    "cpp": "candidates/honest.h",
    "cuda": "gpu/candidates/honest.cuh",
    "triton": "candidates/honest.triton.py",
    "python": "candidates/honest.python.py",
}
"""What the candidates of a language build on."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate of the collection."""

    name: str
    kind: str
    """`cheats`, `faulty`, `honest`."""
    language: Language
    text: str
    """The source, places not yet filled in."""
    header: dict[str, str]

    @property
    def expect(self) -> str:
        return self.header["expect"]

    @property
    def task(self) -> TaskSpec:
        return TASKS[self.header.get("task", "small")]

    def candidate(self, places: Places) -> Candidate:
        """Return it as it is sent to builders: with the honest code that it may build on."""
        text = fill_in(self.text, places)
        shared = Path(__file__).parent / _SHARED[self.language]
        honest = shared.read_text(encoding="utf-8")
        if self.language in {"cpp", "cuda"}:
            name = self.header.get("file", "main.cpp" if self.language == "cpp" else "main.cu")
            files: tuple[SourceFile, ...] = (
                SourceFile(path=name, text=text),
                SourceFile(path=shared.name, text=honest),
            )
        else:
            files = (SourceFile(path="kernel.py", text=f"{honest}\n\n{text}"),)
        entry_point = "ModelNew" if self.language == "python" else "ksearch_run"
        return Candidate(language=self.language, entry_point=entry_point, files=files)


def fill_in(text: str, places: Places) -> str:
    """Put places into a source."""
    for name, value in places.items():
        text = text.replace(f"@{name}@", value)
    return text


def load_cases(kind: str, folder: Path = CANDIDATES) -> list[Case]:
    """Read all candidates of a kind, in the order of language, task and name: judges serve one task at a time."""
    cases = [_load(path, kind) for path in sorted((folder / kind).glob("*/*")) if path.suffix in _SUFFIXES]
    return sorted(cases, key=lambda case: (case.language, case.task.name, case.name))


def _load(path: Path, kind: str) -> Case:
    text = path.read_text(encoding="utf-8")
    header: dict[str, str] = {}
    for line in text.splitlines():
        found = _KEY.match(line)
        if found is None:
            break
        header[found[1]] = found[2].strip()
    missing = {"class", "mechanism", "expect"} - header.keys()
    assert not missing, f"{path} has no {missing}"
    unknown = set(header["expect"].split("|")) - EXPECTATIONS.keys()
    assert not unknown, f"{path} expects {unknown}"
    language: Language = path.parent.name  # type: ignore[assignment]
    return Case(name=f"{path.parent.name}-{path.stem}", kind=kind, language=language, text=text, header=header)


def came_true(case: Case, verdict: Verdict) -> str:
    """Return what is not as expected; empty if all is."""
    fate = fate_of(verdict)
    wanted = set(case.expect.split("|"))
    if "slow" in wanted:
        credit = credit_of(verdict)
        if fate in FATES or (fate in HELD and (credit is None or credit < 1.0)):
            return ""
        return f"a stalled call was given credit: {verdict}"
    allowed = {"denied": FATES, "correct": HELD - {"outpaced"}, "harmless": HELD | FATES}
    fates = set[str]().union(*(allowed.get(word, {word}) for word in wanted))
    if fate not in fates:
        return f"expected {case.expect}, not {verdict}"
    if not re.search(case.header.get("reason", ""), _said(verdict)):
        return f"expected {case.header['reason']!r} in {verdict}"
    return ""


def _said(verdict: Verdict) -> str:
    if isinstance(verdict, Measured):
        return " ".join(verdict.notes)
    log = getattr(verdict, "log", "")
    return f"{reason_of(verdict)} {getattr(verdict, 'family', '')} {log} {' '.join(getattr(verdict, 'patterns', ()))}"
