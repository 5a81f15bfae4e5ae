"""What is to be made fast, and what was written for it: task, workload, candidate, target."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from messages.base import Language, Message

TaskSource: TypeAlias = Literal["kernelbench", "program"]
"""The format a task was read from."""


def content_hash(*parts: str) -> str:
    """Return blake2b-128 (hex) over the parts, each preceded by its length so that no two splits agree."""
    digest = blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


class SourceFile(Message, frozen=True, kw_only=True):
    """One file of a candidate or of a task."""

    path: str
    """Relative, with forward slashes, no `..`."""
    text: str


class Candidate(Message, frozen=True, kw_only=True):
    """A program that claims to do a task: source files, entry point and language."""

    language: Language
    entry_point: str
    """Name of the function that is called, e.g. `ksearch_run`; empty where only the task's evaluator knows."""
    files: tuple[SourceFile, ...]
    """At least one; the first is the main file."""

    @property
    def candidate_id(self) -> str:
        """Content hash over language, entry point and files: the same text is the same candidate."""
        parts = [part for file in self.files for part in (file.path, file.text)]
        return content_hash("candidate", self.language, self.entry_point, *parts)


class Tolerance(Message, frozen=True, kw_only=True):
    """How far an output may lie from the reference; null means: by the output's dtype (see docs/how-we-measure.md)."""

    rtol: float | None = None
    atol: float | None = None


class Scorer(Message, frozen=True, kw_only=True):
    """What scores the programs of a program task: a file of the user's on the host that evaluates, and its limits.

    The file may import its neighbours and read data beside it, which do not travel: only its own text is pinned.
    """

    path: str
    """Absolute; the file defines `evaluate(program_path)`."""
    digest: str
    """blake2b-128 (hex) of the file's bytes."""
    description: str = ""
    """What the file says of itself, for models."""
    timeout_s: float = 60.0
    """For one program."""
    memory_bytes: int = 8 << 30
    """Of private writable memory (RLIMIT_DATA), for each process of one program."""


class TaskSpec(Message, frozen=True, kw_only=True):
    """A task as it is sent to who must build, run or judge: enough to do so on another host."""

    name: str
    """For people: file or problem name."""
    source: TaskSource
    text: str
    """The problem file, verbatim; of a program task the initial program."""
    tolerance: Tolerance = Tolerance()
    scorer: Scorer | None = None
    """Of a program task."""

    @property
    def task_id(self) -> str:
        """Content hash over everything that can change a verdict; the name and the scorer's place are no part of it."""
        scorer = self.scorer
        limits = (scorer.digest, str(scorer.timeout_s), str(scorer.memory_bytes)) if scorer else ()
        return content_hash("task", self.source, self.text, str(self.tolerance.rtol), str(self.tolerance.atol), *limits)


class TensorSpec(Message, frozen=True, kw_only=True):
    """One tensor of a workload."""

    name: str
    """`x`, `gate`, … as the reference calls it; parameters by their path, `norm.weight`."""
    role: Literal["input", "parameter", "output"]
    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix: `float32`, `bfloat16`, `int64`."""


class TaskDescription(Message, frozen=True, kw_only=True):
    """What a coder and a planner are told about a task; made once, by running the reference."""

    task_id: str
    name: str
    language: Language
    tensors: tuple[TensorSpec, ...]
    """Inputs in call order, then parameters and buffers in module order, then outputs."""
    prompt: str
    """Reference program, tensors and calling contract, as prose and code for a model."""
    entry_point: str
    bytes_moved: int
    """Bytes of inputs, parameters and outputs together: what any implementation must touch at least once;
    0: unknown."""


class Target(Message, frozen=True, kw_only=True):
    """What an artifact is built for; said by whoever will run it, never guessed by the builder."""

    arch: str
    """`x86_64`, `aarch64`, `sm_90`."""
    march: str
    """Value of the compiler's `-march`; empty where nothing is compiled."""
    toolchain: str
    """First line of the compiler's `--version`; for plain Python the interpreter and its version."""
    device: str
    """As the system reports it, e.g. `AMD EPYC` or `NVIDIA H200`."""

    @property
    def fingerprint(self) -> str:
        """Content hash of everything that can change an artifact."""
        return content_hash("target", self.arch, self.march, self.toolchain)


class AttemptBrief(Message, frozen=True, kw_only=True):
    """An earlier attempt of a branch, in one line for the coder."""

    number: int
    fate: str
    """Tag of the verdict, or `unusable` where the answer held no candidate."""
    outcome: str
    """One line: the speedup with its interval, or the reason."""


class Action(Message, frozen=True, kw_only=True):
    """A hypothesis to try: what the planner wants done to the parent's code."""

    node_id: str
    title: str
    description: str
    difficulty: int = msgspec.field(default=3)
    """1 (mechanical) to 5 (research)."""
