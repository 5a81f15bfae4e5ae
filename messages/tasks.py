"""Tasks, candidates and targets, and the findings about a task."""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec

from messages.base import Language, Message
from messages.calls import CallForm, Calling

Platform: TypeAlias = Literal["cpu", "cuda"]
"""Kind of device that candidates run on."""

LibraryCalls: TypeAlias = Literal["allow", "deny"]

Measure: TypeAlias = Literal["device", "eager"]
"""Latency of a call on a GPU: the span of its kernels with the launches hidden behind earlier work, or the call as a
user makes it on an idle device. On a CPU both are the same."""

Dimension: TypeAlias = bool | int | float | str
"""A number or word that a workload's inputs are made with."""

TaskSource: TypeAlias = Literal["kernelbench", "program", "gpumode", "flashinfer", "tritonbench", "own"]
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


class TaskRules(Message, frozen=True, kw_only=True):
    """Rules for candidates of a task, and the definition of their time."""

    library_calls: LibraryCalls = "deny"
    """`allow`: the reference's own operators, or a vendor's library, may do the work."""
    allowed: tuple[str, ...] = ()
    """Operators (`aten::mm`) and libraries (`cublas`) that are allowed though others are not."""
    measure: Measure = "device"
    threads: int = 0
    """Threads of candidate and reference on a CPU, bound to as many cores; 0: all, bound to none."""


class Tolerance(Message, frozen=True, kw_only=True):
    """Allowed distance of an output from the reference; null: the profile's (see docs/how-we-measure.md)."""

    profile: str = "strict"
    """`strict`, or what another harness lets through: `kernelbench`, `flashinfer`, `gpumode:2e-2,2e-2`."""
    rtol: float | None = None
    atol: float | None = None


class Scorer(Message, frozen=True, kw_only=True):
    """Scorer of a program task: a file of the user's on the host that evaluates, and its limits.

    The file may import its neighbours and read data beside it, which do not travel: only its own text is pinned.
    """

    path: str
    """Absolute; the file defines `evaluate(program_path)`."""
    digest: str
    """blake2b-128 (hex) of the file's bytes."""
    description: str = ""
    """The file's description of itself, for models."""
    timeout_s: float = 60.0
    """For one program."""
    memory_bytes: int = 8 << 30
    """Of private writable memory (RLIMIT_DATA), for each process of one program."""


class Workload(Message, frozen=True, kw_only=True):
    """One concrete shape of a task's inputs, on which candidates are checked and timed."""

    name: str
    """Unique in its task: `short`, `shapes/odd`."""
    dimensions: dict[str, Dimension]
    """Given to the problem's `get_inputs` and `get_init_inputs` by name, as far as each takes them."""
    hidden: bool = False
    """Held out: candidates are checked on it when they are confirmed, and their authors do not see it."""


class TaskSpec(Message, frozen=True, kw_only=True):
    """A task as it is sent to who must build, run or judge: enough to do so on another host."""

    name: str
    """For people: file or problem name."""
    source: TaskSource
    text: str
    """The problem file, verbatim but for the workloads that it names: they are those of this task, and none is hidden;
    of a program task the initial program."""
    tolerance: Tolerance = Tolerance()
    rules: TaskRules = TaskRules()
    scorer: Scorer | None = None
    """Of a program task."""
    workloads: tuple[Workload, ...] = ()
    """Empty: the problem file makes one kind of inputs, and names none."""
    files: tuple[SourceFile, ...] = ()
    """Modules that the problem file may import; candidates cannot."""
    shown_files: tuple[str, ...] = ()
    """Paths of those that models are shown; empty: all of them."""
    calling: Calling = "module"
    entry_point: str = ""
    """Name of the function that `python` candidates are to define where they are functions; empty: `ksearch_run`."""
    languages: tuple[Language, ...] = ()
    """Languages of candidates; empty: any."""
    notes: str = ""
    """Further text for models: definition, conventions, licence. Markdown."""

    @property
    def task_id(self) -> str:
        """Content hash over everything that can change a verdict: not names, notes, the scorer's place."""
        scorer = self.scorer
        limits = (scorer.digest, str(scorer.timeout_s), str(scorer.memory_bytes)) if scorer else ()
        threads = (f"threads {self.rules.threads}",) if self.rules.threads else ()
        rules = (self.rules.library_calls, *self.rules.allowed, self.rules.measure, *threads)
        tolerance = (self.tolerance.profile, str(self.tolerance.rtol), str(self.tolerance.atol))
        workloads = tuple(
            f"workload {one.name} {one.hidden} {sorted(one.dimensions.items())!r}" for one in self.workloads
        )
        calling = (f"calling {self.calling}",) if self.calling != "module" else ()
        languages = (f"languages {sorted(self.languages)!r}",) if self.languages else ()
        files = tuple(part for one in self.files for part in (f"file {one.path}", one.text))
        return content_hash(
            "task", self.source, self.text, *tolerance, *rules, *limits, *workloads, *calling, *languages, *files
        )

    @property
    def shown(self) -> tuple[Workload, ...]:
        """Workloads that a candidate's author sees, and that it is timed on."""
        return tuple(workload for workload in self.workloads if not workload.hidden)

    @property
    def hidden(self) -> tuple[Workload, ...]:
        """Workloads that are held out."""
        return tuple(workload for workload in self.workloads if workload.hidden)


class TensorSpec(Message, frozen=True, kw_only=True):
    """One tensor of a workload."""

    name: str
    """`x`, `gate`, … as the reference calls it; parameters by their path, `norm.weight`."""
    role: Literal["input", "parameter", "output"]
    shape: tuple[int, ...]
    dtype: str
    """torch's name without the prefix: `float32`, `bfloat16`, `int64`."""


class ModuleTerms(Message, frozen=True, kw_only=True):
    """Construction of torch modules for a workload: as the reference's model is."""

    arguments: str = "()"
    """Constructor arguments: a Python literal, a tuple."""
    parameters: int = 0
    """Number of parameters among the tensors of role `parameter`; buffers follow."""
    trains: bool = True
    """True if they are left in training mode."""


class DescribedWorkload(Message, frozen=True, kw_only=True):
    """One of several workloads."""

    name: str
    tensors: tuple[TensorSpec, ...]
    """As a `TaskDescription` lists them."""
    bytes_moved: int
    flops: int = 0
    """As in `TaskDescription`."""
    bytes_needed: int = 0
    """As in `TaskDescription`."""


class TaskDescription(Message, frozen=True, kw_only=True):
    """A task's description for coders and planners; made once, by running the reference."""

    task_id: str
    name: str
    language: Language
    tensors: tuple[TensorSpec, ...]
    """Inputs in call order, then parameters and buffers in module order, then outputs; of several workloads, the
    first one's."""
    prompt: str
    """Reference program, tensors and calling contract, as prose and code for a model."""
    entry_point: str
    bytes_moved: int
    """Bytes of inputs, parameters and outputs together; 0: unknown."""
    bytes_needed: int = 0
    """Of them, those that the outputs depend on for data as the task draws it: the mean over some draws; 0: not looked
    at."""
    intake: Intake | None = None
    """Findings on the task's own checks; null: not looked at."""
    flops: int = 0
    """Of the reference's matrix products, convolutions and attentions, two per multiply-add; 0: none, or unknown."""
    workloads: tuple[DescribedWorkload, ...] = ()
    """All of them, hidden ones aside, where there are several; empty: there is one, and it stands above."""
    modules: tuple[ModuleTerms, ...] = ()
    """Of each workload, where candidates are torch modules; empty where they are not."""
    calls: tuple[CallForm, ...] = ()
    """Of each workload; empty: a call takes the tensors one after the other, and nothing else."""

    @property
    def other_tensors(self) -> tuple[tuple[TensorSpec, ...], ...]:
        """Tensors of each workload but the first."""
        return tuple(workload.tensors for workload in self.workloads[1:])


class CpuFacts(Message, frozen=True, kw_only=True):
    """A host's CPU."""

    cores: int
    """That a process here may run on, hardware threads included."""
    l1_bytes: int = 0
    """Data cache of one core; 0, as for the next two: not told."""
    l2_bytes: int = 0
    """Of one core, or of the cores that share it."""
    l3_bytes: int = 0
    """Shared by cores."""


class Target(Message, frozen=True, kw_only=True):
    """Target of an artifact; given by the host that will run it, never guessed by the builder."""

    arch: str
    """`x86_64`, `aarch64`, `sm_90`."""
    march: str
    """Value of the compiler's `-march`; empty where nothing is compiled."""
    toolchain: str
    """First line of the compiler's `--version`; for plain Python the interpreter and its version."""
    device: str
    """As the system reports it, e.g. `AMD EPYC` or `NVIDIA H200`."""
    cpu: CpuFacts | None = None
    """Of a target that is a CPU; what it says changes no artifact."""

    @property
    def platform(self) -> Platform:
        """Kind of the device."""
        return "cuda" if self.arch.startswith("sm_") else "cpu"

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


Fitness: TypeAlias = Literal["fit", "marked", "refused"]
"""`marked`: a candidate could leave out part of the work and pass; `refused`: it could leave out all of it."""


class TrivialAnswer(Message, frozen=True, kw_only=True):
    """An answer that computes nothing, put through the task's own check."""

    name: str
    """`zeros`, `the mean everywhere`, `input x`, `the output for other inputs`."""
    passes: bool
    wrong_share: float
    """Share of the elements that the check finds wrong."""


class Influence(Message, frozen=True, kw_only=True):
    """Effect of changing one tensor alone on the outputs."""

    tensor: str
    role: Literal["input", "parameter", "buffer"]
    matters: bool | None
    """True if any output moves by more than the tolerance; null: not looked at."""
    moved_share: float = 0.0
    """Share of the output elements that do."""
    why_not: str = ""
    """Reason for not looking."""


class Intake(Message, frozen=True, kw_only=True):
    """Findings on a task. Hidden from models, which could learn from them which work to skip."""

    fitness: Fitness
    findings: tuple[str, ...] = ()
    """Reasons for not being simply fit, a sentence each."""
    tolerance: str = ""
    """The profile that it holds for."""
    reference_us: float | None = None
    """About how long the reference takes in the judge, which is in no hurry."""
    answers: tuple[TrivialAnswer, ...] = ()
    influences: tuple[Influence, ...] = ()
    read_shares: dict[str, float] = msgspec.field(default_factory=dict)
    """Of the workloads that are shown (`""`: there is one), the share of the bytes of inputs and parameters that the
    outputs depend on for data as the task draws it; empty: not looked at."""
