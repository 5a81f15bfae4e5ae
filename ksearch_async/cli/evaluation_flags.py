"""The options of `eval` and `export`, which both evaluate: a field per setting, null where it was not given."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter, validators

from ksearch_async.config import KernelLanguage
from ksearch_async.evaluation import EvaluationSettings
from messages.base import Isolation
from messages.tasks import LibraryCalls, Measure


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class EvaluationFlags:
    """How sources are evaluated; what is not named is as by default, or of a run's kernel as the run had it."""

    language: KernelLanguage | None = None
    """What they are written in; `python` is a torch module, `ModelNew`. [default: of .cu files cuda, of .py files
    triton (python if they define ModelNew), else cpp]"""
    device: str | None = None
    """Where they run: `cpu`, `cuda:0`, or several GPUs of this host: `cuda:0,cuda:1`. [default: cpu]"""
    baseline: Literal["torch.compile"] | None = None
    """A second program to time beside the reference, on a GPU."""
    isolation: Isolation | None = None
    """How they are kept from this host: `auto`, by what it has; `strict`, not run unless it has Landlock or a private
    root, seccomp, and no network. [default: auto]"""
    threads: Annotated[int | None, Parameter(validator=validators.Number(gte=0))] = None
    """On how many CPU threads candidate and reference run, bound to as many cores; 0: on all. [default: 0; of a run's
    best as the run had it]"""
    measure: Measure | None = None
    """What counts as latency on a GPU: `device`, the span of a call's kernels with launches hidden behind other work;
    `eager`, the call as a user makes it on an idle device. [default: device; of a run's best as the run had it]"""
    tolerance: str | None = None
    """How far outputs may lie from the reference: `strict`, or what another harness lets through: `kernelbench`,
    `flashinfer`, `gpumode:RTOL,ATOL`. [default: strict; of a run's best as the run had it]"""
    library_calls: LibraryCalls | None = None
    """Whether a library may do the work: `deny` rejects what calls operators of torch other than
    views, copies and plain elementwise ones, cuBLAS and the like. [default: deny; of a run's best as the run had it]"""
    allow_library: str | None = None
    """What is allowed though the rest is not, with commas: operators (`aten::mm`), families of them (`matmul`),
    libraries (`cublas`)."""
    allow_trivial: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Take a task on though an answer that computes nothing would pass."""

    def settings(self) -> EvaluationSettings:
        """Return what was named: the others are as by default, or as a task of a run has them."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return msgspec.convert({name: value for name, value in named.items() if value is not None}, EvaluationSettings)


NO_EVALUATION_FLAGS = EvaluationFlags()
