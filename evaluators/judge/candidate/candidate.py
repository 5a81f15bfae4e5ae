"""The candidate's side: one runner process per candidate, and the interpretation of its end."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import msgspec

from evaluators.build.builder import is_full
from evaluators.build.folders import remove_tree
from evaluators.judge.candidate.runner import Launcher, Own, Runner, RunnerError, RunnerSpec, say_end
from evaluators.judge.candidate.sanitizer import sanitize
from evaluators.judge.candidate.side import Answer, NoAnswerError, Stage
from evaluators.judge.check.terms import Place, Terms, broken_rule
from evaluators.judge.data.memory import Buffers
from evaluators.judge.protocol import Artifact, Limits
from evaluators.judge.reference.problem import Tensors
from evaluators.languages.base import LanguageSupport
from evaluators.languages.cpp.toolchain import tvm_ffi_library
from evaluators.process.guard import descendants_of, kill_descendants
from evaluators.process.sandbox.claims import may_start_compilers, missing_for_strict, unpack
from evaluators.runners.base import (
    CALL,
    EMPTY,
    GIVE,
    ISOLATION,
    LOAD,
    LOADED,
    PROFILE,
    RECORD_BYTES,
    SEAL,
)
from messages.verdicts import Crashed, DidNotBuild, Rejected, TimedOut, Verdict, Wrong


class HostError(Exception):
    """The host made a candidate fail: the judge is broken, not the candidate."""


class Host:
    """Watches the host of a judge."""

    def __init__(self) -> None:
        self._killed = _processes_killed()

    def answer_for(self, verdict: Verdict) -> None:
        """Check that a failure is the candidate's own."""
        killed, before = _processes_killed(), self._killed
        self._killed = killed
        if not isinstance(verdict, Crashed | DidNotBuild | TimedOut):
            return
        if killed > before and "SIGKILL" in verdict.reason:
            raise HostError("this host ran out of memory while a candidate was judged")
        if is_full(Path.cwd()):
            raise HostError(f"the disk under {str(Path.cwd())!r} is full")


def _processes_killed() -> int:
    """Return the number of processes that the kernel has killed for lack of memory; 0 if it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


_EMPTY_CALLS = 15
_THREAD_BYTES = 256 << 20
"""Further address space for a thread: its stack, and an arena of malloc's."""
_CACHE_BYTES = 64 << 20
"""Largest file that a GPU candidate may write, for its compiled kernels."""
_MOST_RECORDS = 4  # of this size, beside its output: each is taken before the next
_END_S = 5.0
_RULE = "processes"

_Failure = TypeVar("_Failure", bound=Crashed | DidNotBuild | Wrong)


class CandidateFailedError(Exception):
    """The candidate's process failed; carries the verdict."""

    def __init__(self, verdict: Crashed | TimedOut | Rejected | DidNotBuild | Wrong) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


class CandidateSide:
    """A loaded candidate. A context manager: on exit its process and all its descendants are killed."""

    def __init__(
        self,
        place: Place,
        artifact: Artifact,
        support: LanguageSupport,
        launcher: Launcher,
        limits: Limits,
        *,
        threads: int,
        others: Sequence[Place] = (),
        keep: frozenset[int],
        private_inputs: bool = False,
        stops: bool = True,
        cupti: str = "",
    ) -> None:
        """Prepare; entering the context starts the process.

        See `Bench.side`. `keep`: process ids below this process that are not the candidate's.
        """
        self._place = place
        self._others = others or (place,)
        self._artifact = artifact
        self._support = support
        self._launcher = launcher
        self._limits = limits
        self._threads = threads
        self._keep = keep
        self._private_inputs = private_inputs
        self._stops = stops
        self._cupti = cupti
        self._may_start_compilers = False
        self.empty_ns = 0
        self.isolation: tuple[str, ...] = ()
        """The layers that isolated its process before it loaded the candidate, as reported then."""
        self._next: Runner | None = None
        """The process that will replace this one."""

    def __enter__(self) -> CandidateSide:
        self._begin()
        return self

    def _begin(self) -> None:
        """Start a process, unless a prepared one is still alive."""
        if self._next is not None and not self._next.lives:
            self._next.close()
            self._next = None
        self._runner, self._next = self._next or self._started(), None
        self._runner.line.workload = self._place.number
        self._stage: Stage = "start"
        self._held: dict[int, Tensors] = {}
        """State of each workload's instance, by number."""
        self._called: set[int] = set()
        """Numbers of workloads that it was called on."""
        self._is_sealed = False
        self._has_begun = False
        """True if it has answered; before that it starts an interpreter."""

    def _started(self) -> Runner:
        return Runner(self._spec, self._launcher, self._buffers, stops=self._stops)

    def get_another_ready(self) -> None:
        """Start the process in which a module will have other parameters; on a GPU that takes a quarter of a second."""
        self._next = self._next or self._started()

    def _spec(self, own: Own) -> RunnerSpec:
        return RunnerSpec(
            judge_pid=os.getpid(),
            nonce=own.nonce,
            folder=own.folder,
            control_fd=own.control_fd,
            inputs_fd=own.inputs_fd,
            inputs_bytes=self._buffers.inputs.size_bytes,
            outputs_fd=self._buffers.outputs.fd,
            outputs_bytes=self._buffers.outputs.size_bytes,
            workloads=tuple((*one.buffers.inputs.placed, *one.buffers.outputs.placed) for one in self._others),
            product=self._artifact.product,
            entry_point=self._artifact.entry_point,
            tvm_ffi=tvm_ffi_library(),
            private_inputs=self._private_inputs,
            memory_bytes=self._memory_bytes(),
            file_bytes=self._limits.printed_bytes + (_MOST_RECORDS * RECORD_BYTES if self._cupti else 0),
            threads=self._threads,
            terms=msgspec.structs.replace(self._terms, module=None, call=None),
            calls=tuple(one.terms.call for one in self._others),
            instances=tuple(one.terms.module for one in self._others if one.terms.module is not None),
            cache=str(cache_of(self._artifact, len(self._others))),
            cache_bytes=_CACHE_BYTES,
            cupti=self._cupti,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None
        self._leave()

    def _leave(self) -> None:
        self._end()
        self._runner.close()

    def load(self) -> None:
        """Measure empty calls, then load the artifact; a module with its own parameters is loaded by `hold`."""
        self._await_start()
        empty = sorted(self.ask(EMPTY).elapsed_ns for _ in range(_EMPTY_CALLS))
        self.empty_ns = empty[self._buffers.empty_rank(len(empty))]
        self._see_isolation()
        if self._terms.module is None:
            self._load()

    def _see_isolation(self) -> None:
        """Query the layers that isolate the process before it loads candidate code; its others had as many."""
        claim = self.ask(ISOLATION).status
        layers, before = unpack(claim), self.isolation
        if self._limits.isolation == "strict" and (missing := missing_for_strict(claim)):
            raise RunnerError(f"--isolation strict, but a runner here lacks {', '.join(missing)}")
        if before and layers != before:
            raise RunnerError(
                f"a runner is behind {', '.join(layers)}, the one before it was behind {', '.join(before)}"
            )
        self.isolation, self._may_start_compilers = layers, may_start_compilers(claim)

    def _await_start(self) -> None:
        """Wait until it answers. No candidate code is loaded yet, so any failure is ours."""
        self.ask(EMPTY, limit_s=max(self._limits.load_s, self._limits.start_s))

    def turn_to(self, place: Place) -> None:
        """Switch calls to another workload. Its memory must be written again then."""
        if place.number == self._place.number:
            return
        self._place = place
        self._buffers.renew()
        self._runner.line.workload = place.number

    @property
    def _buffers(self) -> Buffers:
        return self._place.buffers

    @property
    def _terms(self) -> Terms:
        return self._place.terms

    def hold(self, state: Tensors) -> None:
        """Give a module's instance for this workload the parameters in the buffers.

        Other parameters take another process, which serves the other workloads as well.
        """
        number = self._place.number
        if self._terms.module is None or self._held.get(number) is state:
            return
        if number in self._held:
            self._leave()
            self._begin()
            self._await_start()
            self._see_isolation()
        self._held[number] = state
        self._buffers.settle()
        self._load()

    def _load(self) -> None:
        self._stage = "load"
        status = self.ask(LOAD).status
        if (broken := broken_rule(status, self._terms)) is not None:
            raise CandidateFailedError(broken)
        if status != LOADED:
            failure = self._support.explain_load_failure(status, self._runner.log.tail())
            raise CandidateFailedError(self._at_stage(failure))
        self._stage = "first call"

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._runner.pid

    def hurry(self, *, first: bool) -> None:
        """Give its later calls priority over other processes of the host, or stop doing so."""
        self._runner.line.is_urgent = first

    def ask(self, operation: int, *, limit_s: float | None = None) -> Answer:
        """Let the candidate run until it answers; None: within the limit of a load."""
        limit_s = self._limits.load_s if limit_s is None else limit_s
        number = self._place.number
        if operation == CALL:
            self._stage = "call" if number in self._called else "first call"
        try:
            take = self._buffers.take if operation in {CALL, EMPTY, GIVE} else None
            glimpse = self._buffers.glimpse
            look = glimpse.take if operation == CALL and glimpse is not None else None
            self._runner.line.arrangement = self._buffers.arrangement
            is_later = number in self._called if operation == CALL else self._has_begun
            is_timed = is_later and operation in {CALL, EMPTY, GIVE}
            answer = self._runner.line.exchange(operation, limit_s=limit_s, is_timed=is_timed, take=take, look=look)
        except NoAnswerError as silence:
            raise CandidateFailedError(self._explain(silence)) from None
        self._has_begun = True
        if operation == CALL:
            if (broken := broken_rule(answer.status, self._terms)) is not None:
                raise CandidateFailedError(broken)
            if answer.status != 0:
                failure = self._support.explain_call_failure(answer.status, self._runner.log.tail())
                raise CandidateFailedError(self._at_stage(failure))
            self._called.add(number)
            self._stage = "call"
        return answer

    def call_limit_s(self, later_s: float) -> float:
        """Return the time limit of the next call, given that of later calls. The first on a workload may take longer.

        It compiles its kernels for these shapes then.
        """
        return later_s if self._place.number in self._called else max(later_s, self._limits.first_call_s)

    def call(self, *, limit_s: float) -> Answer:
        """Call the candidate once. Once it was called on all workloads it has compiled, and is sealed."""
        answer = self.ask(CALL, limit_s=limit_s)
        if len(self._called) == len(self._others):
            self.seal()
        return answer

    def seal(self) -> None:
        """Take away the ability to start processes, which compilers needed until now; at once if that is done."""
        if not self._may_start_compilers or self._is_sealed:
            return
        before = filters_of(self.pid)
        self.ask(SEAL)
        self._is_sealed = True
        if (refusal := not_sealed(self.pid, before)) is not None:
            raise CandidateFailedError(refusal)

    def expect_alone(self) -> None:
        """Check that no process of the candidate's runs besides its own."""
        if (refusal := other_process(self.pid, self._keep)) is not None:
            raise CandidateFailedError(refusal)

    def record(self, *, limit_s: float) -> bytes:
        """Make and record a call. Returns the output until then, with the record at its end."""
        self.ask(PROFILE, limit_s=limit_s)
        return self._runner.log.take(2 * RECORD_BYTES)

    def _at_stage(self, failure: _Failure) -> _Failure:
        return msgspec.structs.replace(failure, stage=self._stage) if isinstance(failure, Crashed) else failure

    def _explain(self, silence: NoAnswerError) -> Crashed | TimedOut | Rejected:
        stage = self._stage
        if stage == "start" or silence.kind != "ended":
            self._end()
        if stage == "start":
            told = f"; it said: {said}" if (said := self._runner.log.tail()) else ""
            raise RunnerError(f"a runner {silence.kind} before it had loaded a candidate{told}")
        if silence.kind == "timed out":
            reason = f"killed after {silence.limit_s:g} s without an answer ({stage})"
            return TimedOut(reason=reason, stage=stage, limit_s=silence.limit_s)
        if silence.kind == "cannot be stopped":
            return Rejected(reason="its process cannot be stopped between calls", rule="control")
        if silence.kind == "went on":
            return Rejected(reason="its process went on between its calls, while it was to be stopped", rule="control")
        if silence.kind == "bad frame":
            return Rejected(reason="it wrote to its runner's control socket", rule="control")
        try:
            code = self._runner.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._end()
            return Rejected(reason="it closed its runner's control socket", rule="control")
        return Crashed(reason=f"{say_end(code)} ({stage})", stage=stage, log=self._runner.log.tail())

    def sanitized(self, crashed: Crashed, path: str) -> Crashed:
        """Repeat the crashed call under compute-sanitizer. Returns a verdict with more details."""
        try:
            spec = self._spec(Own(0, "", -1, -1))
            return sanitize(spec, self._support.runner, self._place.number, self._buffers, path).told_in(crashed)
        finally:
            kill_descendants(keep=self._keep)

    @property
    def printed(self) -> str:
        """Return the end of the process's output, without this host's paths."""
        return self._runner.log.tail()

    @property
    def segfaulted(self) -> bool:
        """True if the process ended by an invalid memory access."""
        return self._runner.segfaulted

    def _end(self) -> None:
        self._runner.kill()
        kill_descendants(keep=self._keep | ({self._next.pid} if self._next is not None else set()))

    def _memory_bytes(self) -> int:
        shared = self._buffers.inputs.size_bytes + self._buffers.outputs.size_bytes
        held = sum(place.held_bytes for place in self._others)
        return shared + held + self._limits.memory_bytes + _THREAD_BYTES * self._threads


def filters_of(pid: int) -> int | None:
    """Return the number of a process's system call filters; None: the kernel does not tell (before Linux 5.9)."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    lines = dict(line.partition(":")[::2] for line in status.splitlines())
    return int(lines["Seccomp_filters"]) if "Seccomp_filters" in lines else None


def not_sealed(pid: int, before: int | None) -> Rejected | None:
    """Return a rejection if a process has not installed another filter."""
    now = filters_of(pid)
    if before is None or now is None or now > before:
        return None
    return Rejected(reason="its process did not give up the means to start others", rule=_RULE)


def other_process(pid: int, keep: frozenset[int]) -> Rejected | None:
    """Return a rejection if another process of the candidate's runs: stopping its own would not stop that one."""
    if not descendants_of(os.getpid(), but=keep) - {pid}:
        return None
    return Rejected(reason="it has started a process that goes on between its calls", rule=_RULE)


def cache_of(artifact: Artifact, workloads: int) -> Path:
    """Return the folder, in the judge's own, where checks leave compiled kernels for the process that is timed.

    A process that was called on hidden workloads leaves nothing to one with output that the author sees.
    """
    folder = Path.cwd() / f"{_name(artifact)}{workloads}"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)  # for any user that the runner becomes; the judge's own folder is closed to others
    return folder


def forget(artifact: Artifact) -> None:
    """Remove the files of earlier processes of an artifact: they could hold results."""
    for folder in Path.cwd().glob(f"{_name(artifact)}*"):
        remove_tree(folder)


def _name(artifact: Artifact) -> str:
    return f"cache-{hashlib.blake2b(artifact.product.encode(), digest_size=8).hexdigest()}-"
