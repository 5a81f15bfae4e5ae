"""Devices of this host, and the builders and evaluators that use them.

`device_of("cpu")`, `device_of("cuda:0")`, `device_of("simulated:2")`. Siblings: each can be probed, proves
itself, and opens its workers.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread
import msgspec

from actors.bus.base import Bus
from evaluators.base import Builder, Evaluator
from evaluators.hardware.target import CPU, devices_of
from evaluators.judge.check.tolerances import STRICT, check_profile
from evaluators.languages import languages_on
from evaluators.remote import modal_line
from evaluators.remote.modal_line import gpu_of
from ksearch_async.errors import refusal
from ksearch_async.settings.run_config import API_KEY_VARIABLES, ROLE_KEY_VARIABLES, Dialect, RunConfig, WorkerSettings
from messages.base import EvaluatorError, Isolation, Language
from messages.tasks import Candidate, LibraryCalls, Measure, Target, TaskDescription, TaskSpec

if TYPE_CHECKING:
    from evaluators.local import LocalEvaluator, SeveralEvaluators
    from evaluators.remote.near import Line


SIMULATED_S = 0.2


class Device(Protocol):
    """One kind of device."""

    name: str
    """Its name in `--device`."""
    languages: tuple[Language, ...]
    """Languages that a node serves on it by default, as far as its host supports them."""

    def describe(self) -> str:
        """Return its name as the system reports it; reads one small file at most."""

    async def probe(self, language: Language) -> Target:
        """Return the target for which this host builds in a language.

        Raises:
            messages.base.EvaluatorError: there is none; names the package to install.
        """

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """Build known kernels, in a store of their own within `artifacts`.

        Raises:
            messages.base.EvaluatorError: names the failure.
        """

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """Build, check and time a known correct kernel, and find a known wrong one wrong.

        Raises:
            messages.base.EvaluatorError: names the failure.
        """

    def make_builder(self, bus: Bus, artifacts: Path) -> Builder:
        """Return a builder with artifacts for evaluators on other hosts."""

    def make_evaluator(self, bus: Bus, artifacts: Path, *, slots: int) -> Evaluator:
        """Return an evaluator that fetches the artifacts of builders on other hosts."""


def device_of(text: str, isolation: Isolation = "auto") -> Device:
    """Return the device that `--device` names."""
    kind, _, rest = text.partition(":")
    if kind == "cpu" and not rest:
        return HostDevice(isolation=isolation)
    if kind == "simulated":
        return SimulatedDevice(_seconds(text, rest))
    if kind == "cuda" and rest.isdecimal():
        return HostDevice(text, isolation=isolation)
    raise refusal(f"--device {text!r} is not known", "it is cpu, cuda:0 (cuda:1, …), or simulated[:SECONDS]")


def _seconds(text: str, rest: str) -> float:
    if not rest:
        return SIMULATED_S
    try:
        seconds = float(rest)
    except ValueError:
        seconds = -1.0
    if not isfinite(seconds) or seconds < 0:
        raise refusal(f"--device {text!r}: expected seconds behind the colon", "--device simulated:2")
    return seconds


class HostDevice:
    """A device of this host: its CPU with Triton's interpreter, or one of its GPUs."""

    def __init__(self, name: str = CPU, *, isolation: Isolation = "auto") -> None:
        """Make a device.

        Args:
            name: `cpu`, or `cuda:0`, `cuda:1`, ….
            isolation: how the host is protected from candidates.
        """
        self.name = name
        self._isolation: Isolation = isolation
        self.languages = languages_on("cpu" if name == CPU else "cuda")

    def describe(self) -> str:
        """Return its name as the system reports it."""
        if self.name == CPU:
            from evaluators.languages.cpp.toolchain import cpu_model  # noqa: PLC0415 - each device loads what it needs

            return cpu_model()
        from evaluators.hardware.vendors.nvidia.facts import gpu_facts  # noqa: PLC0415

        return gpu_facts(self.name).name

    async def probe(self, language: Language) -> Target:
        """See `Device.probe`; runs a compiler once."""
        from evaluators.hardware.target import probe_target  # noqa: PLC0415

        return await anyio.to_thread.run_sync(probe_target, language, self.name)

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """See `Device.prove_builder`."""
        from evaluators.build.builder import LocalBuilder  # noqa: PLC0415
        from evaluators.judge.proof import prove_builder  # noqa: PLC0415

        async with _empty_store(artifacts) as store:
            await prove_builder(LocalBuilder(store, isolation=self._isolation), language, target)

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """See `Device.prove_evaluator`."""
        from evaluators.build.builder import LocalBuilder  # noqa: PLC0415
        from evaluators.judge.proof import prove_evaluator  # noqa: PLC0415
        from evaluators.local import LocalEvaluator  # noqa: PLC0415

        async with _empty_store(artifacts) as store:
            builder = LocalBuilder(store, isolation=self._isolation)
            evaluator = LocalEvaluator(store, device=self.name, slots=1, isolation=self._isolation)
            try:
                await prove_evaluator(builder, evaluator, language, target)
            finally:
                await evaluator.aclose()

    def make_builder(self, bus: Bus, artifacts: Path) -> Builder:
        """See `Device.make_builder`."""
        from actors.worker.artifacts import ShippingBuilder  # noqa: PLC0415
        from evaluators.build.builder import LocalBuilder  # noqa: PLC0415

        return ShippingBuilder(bus, LocalBuilder(artifacts, isolation=self._isolation), artifacts)

    def make_evaluator(self, bus: Bus, artifacts: Path, *, slots: int) -> Evaluator:
        """See `Device.make_evaluator`."""
        from actors.worker.artifacts import FetchingEvaluator  # noqa: PLC0415
        from evaluators.local import LocalEvaluator  # noqa: PLC0415

        evaluator = LocalEvaluator(artifacts, device=self.name, slots=slots, isolation=self._isolation)
        return FetchingEvaluator(bus, evaluator, artifacts)


class SimulatedDevice:
    """A device on which nothing runs: after a fixed time a verdict is derived from the candidate's hash."""

    name = "simulated"
    languages: tuple[Language, ...] = ("cpp", "triton")

    def __init__(self, seconds: float) -> None:
        """Make a device.

        Args:
            seconds: duration of an evaluation.
        """
        self._seconds = seconds

    def describe(self) -> str:
        """Return the name of simulated devices."""
        return self.name

    async def probe(self, language: Language) -> Target:  # noqa: ARG002 - the same for all
        """Return the target of simulated devices."""
        from evaluators.simulated import SIMULATED  # noqa: PLC0415

        return SIMULATED

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """Do nothing: nothing is built."""

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """Do nothing: nothing is run."""

    def make_builder(self, bus: Bus, artifacts: Path) -> Builder:  # noqa: ARG002 - nothing is built that could be sent
        """See `Device.make_builder`."""
        from evaluators.simulated import SimulatedBuilder, hashed_outcome  # noqa: PLC0415

        return SimulatedBuilder(hashed_outcome)

    def make_evaluator(self, bus: Bus, artifacts: Path, *, slots: int) -> Evaluator:  # noqa: ARG002 - see above
        """See `Device.make_evaluator`."""
        from evaluators.simulated import SimulatedEvaluator, hashed_verdict  # noqa: PLC0415

        return SimulatedEvaluator(hashed_verdict, wall_s=self._seconds)


@asynccontextmanager
async def _empty_store(artifacts: Path) -> AsyncIterator[Path]:
    """Lend an empty store for a proof, since earlier builds prove nothing. It is removed afterwards."""
    folder = await anyio.to_thread.run_sync(_made_in, artifacts)
    try:
        yield Path(folder.name)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(folder.cleanup)


def _made_in(artifacts: Path) -> tempfile.TemporaryDirectory[str]:
    try:
        artifacts.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=".proving-", dir=artifacts, ignore_cleanup_errors=True)
    except OSError as error:
        raise EvaluatorError(f"the artifact store {str(artifacts)!r} failed: {error}") from error


class Describe(Protocol):
    """Describes the task for models."""

    async def __call__(self, language: Language | None = None, /) -> TaskDescription:
        """Return the description for candidates of a language; null: of the workers' language.

        Raises:
            ConfigError: the task cannot be used.
            messages.base.EvaluatorError: the judge failed.
        """


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """A builder and an evaluator."""

    builder: Builder
    evaluator: Evaluator
    describe: Describe


def read_task(config: RunConfig) -> TaskSpec:
    """Return the task that a configuration names."""
    program = config.program
    if program.evaluator is not None:
        if config.tolerance != STRICT:
            raise refusal("--tolerance is for kernels, and programs have their own evaluator", "leave it out")
        if config.threads:
            raise refusal("--threads is for kernels, and programs have their own evaluator", "leave it out")
        from evaluators.programs.task import load_program  # noqa: PLC0415 - each source is loaded only where it is used

        return load_program(config.task, program.evaluator, timeout_s=program.timeout_s, memory_gib=program.memory_gib)
    from evaluators.tasks import load_task  # noqa: PLC0415

    task = load_task(config.task)
    # The task's own settings apply unless the user sets others.
    if config.tolerance != STRICT:
        task = with_tolerance(task, config.tolerance)
    if config.library_calls != "deny" or config.allow_library:
        task = with_library_calls(task, config.library_calls, config.allow_library)
    if config.measure != "device":
        task = with_measure(task, config.measure, device=config.workers.device if config.nats is None else None)
    check_baseline(config.workers)
    return with_threads(task, config.threads, device=config.workers.device) if config.threads else task


def with_tolerance(task: TaskSpec, profile: str) -> TaskSpec:
    """Return the task with a tolerance profile."""
    check_profile(profile)
    return msgspec.structs.replace(task, tolerance=msgspec.structs.replace(task.tolerance, profile=profile))


def with_library_calls(task: TaskSpec, library_calls: LibraryCalls, allowed: str) -> TaskSpec:
    """Return the task with a rule for library calls.

    Args:
        task: a task of kernels.
        library_calls: whether all are allowed.
        allowed: exceptions, separated by commas.
    """
    from evaluators.build.policy.operators import parse_allowed  # noqa: PLC0415 - costs the start-up of every command

    rules = msgspec.structs.replace(task.rules, library_calls=library_calls, allowed=parse_allowed(allowed))
    return msgspec.structs.replace(task, rules=rules)


def with_measure(task: TaskSpec, measure: Measure, *, device: str | None) -> TaskSpec:
    """Return the task with a definition of latency on a GPU.

    Args:
        task: a task of kernels.
        measure: the definition.
        device: device of the candidates, as `--device` names it; None: on other hosts.
    """
    if measure != task.rules.measure and device == CPU:
        raise refusal(f"--measure {measure} is for GPUs; on a CPU a call takes what it takes", "leave it out")
    return msgspec.structs.replace(task, rules=msgspec.structs.replace(task.rules, measure=measure))


def with_threads(task: TaskSpec, threads: int, *, device: str) -> TaskSpec:
    """Return the task, timed on this number of CPU threads; 0: on all."""
    if threads and device != CPU:
        raise refusal(f"--threads is for CPUs, and --device is {device}", "leave it out")
    return msgspec.structs.replace(task, rules=msgspec.structs.replace(task.rules, threads=threads))


def check_threads_here(task: TaskSpec) -> None:
    """Refuse a task with more threads than this host has cores, if it is evaluated here."""
    cores = len(os.sched_getaffinity(0))
    if task.rules.threads > cores:
        raise refusal(f"--threads {task.rules.threads}: this host gives {cores} cores", f"at most --threads {cores}")


def check_baseline(settings: WorkerSettings) -> None:
    """Refuse a second baseline where it cannot be timed."""
    if settings.baseline and gpu_of(settings.device) is not None:
        raise refusal(f"--baseline {settings.baseline} is for GPUs of this host", "leave it out")
    if settings.baseline and settings.device == CPU:
        raise refusal(f"--baseline {settings.baseline} is for GPUs, and --device is {CPU}", "leave it out")


def is_task(name: str) -> bool:
    """Return True if this names a problem rather than a run: a bundled one, a source's, or a file."""
    from evaluators.tasks import is_bundled, names_source, split_path  # noqa: PLC0415

    return is_bundled(name) or names_source(name) or split_path(name)[0].is_file()


def check_model(task: TaskSpec, language: Language, dialect: Dialect) -> None:
    """Refuse a model that cannot write for a task."""
    check_language(task, language)
    if task.source != "program" and language == "python" and dialect == "offline":
        raise refusal("the built-in rules write no torch modules", "name a model: --model NAME; or use --language cpp")
    if task.source == "program" and dialect == "offline":
        raise refusal("the built-in rules write kernels and know nothing of programs", "name a model: --model NAME")


def check_language(task: TaskSpec, language: Language) -> None:
    """Refuse a language that the task does not allow."""
    if task.languages and language not in task.languages:
        raise refusal(
            f"task {task.name!r} is for candidates in {', '.join(task.languages)}, not in {language}",
            f"use --language {task.languages[0]}",
        )


def initial_program(task: TaskSpec) -> Candidate | None:
    """Return the program that a search starts from, if it can be scored like a candidate."""
    if task.source != "program":
        return None
    from evaluators.programs.task import initial_candidate  # noqa: PLC0415

    return initial_candidate(task)


async def find_target(task: TaskSpec, language: Language, device: str = "cpu") -> Target:
    """Return the target that this machine builds for. Runs a compiler once, if there is one.

    Args:
        task: the candidates' task.
        language: the candidates' language.
        device: `cpu`, `cuda:0`, or several GPUs: `cuda:0,cuda:1`.
    """
    if task.source == "program":
        from evaluators.programs.task import probe_interpreter  # noqa: PLC0415

        return probe_interpreter()
    from evaluators.hardware.target import probe_target  # noqa: PLC0415

    if (gpu := gpu_of(device)) is not None:
        from evaluators.remote.near import RemoteBuilder, RemoteEvaluator  # noqa: PLC0415

        async with modal_line.open_modal(gpu) as line:
            return await RemoteEvaluator(line, RemoteBuilder(line)).probe(language)
    try:
        targets = [await anyio.to_thread.run_sync(probe_target, language, name) for name in devices_of(device)]
    except EvaluatorError as error:
        raise refusal(str(error), "ksearch doctor checks what a search needs") from error
    if any(target != targets[0] for target in targets):
        listed = ", ".join(f"{target.device} ({target.arch})" for target in targets)
        raise refusal(f"--device {device}: these differ ({listed})", "a run is for one kind of device")
    return targets[0]


@asynccontextmanager
async def open_workers(
    task: TaskSpec, language: Language, artifacts: Path, settings: WorkerSettings
) -> AsyncIterator[Workers]:
    """Make builder and evaluator, and end their processes afterwards.

    Args:
        task: the candidates' task.
        language: the candidates' language.
        artifacts: the store of build products.
        settings: device, and number of jobs at once.
    """
    async with AsyncExitStack() as stack:
        if task.source == "program":
            workers = _program_workers(task, settings)
        elif (gpu := gpu_of(settings.device)) is not None:
            workers = _remote_workers(task, language, await stack.enter_async_context(modal_line.open_modal(gpu)))
        else:
            workers = _kernel_workers(task, language, artifacts, settings)
        try:
            yield workers
        finally:
            await workers.evaluator.aclose()


def _program_workers(task: TaskSpec, settings: WorkerSettings) -> Workers:
    from evaluators.programs.evaluator import ProgramBuilder, ProgramEvaluator  # noqa: PLC0415
    from evaluators.programs.task import describe_program  # noqa: PLC0415

    if settings.isolation == "strict":
        raise refusal(
            "--isolation strict is for kernels: programs are scored by an evaluate() of yours, with your rights",
            "leave it out",
        )

    async def describe(_language: Language | None = None) -> TaskDescription:
        return describe_program(task)

    hidden = {*API_KEY_VARIABLES, *ROLE_KEY_VARIABLES.values()}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    evaluator = ProgramEvaluator(slots=settings.evaluators, environment=environment)
    return Workers(builder=ProgramBuilder(), evaluator=evaluator, describe=describe)


def slots_of(settings: WorkerSettings) -> int:
    """Return the number of candidates judged at once: the configured number, or one for each GPU."""
    if gpu_of(settings.device) is not None:
        return 1
    devices = devices_of(settings.device)
    return settings.evaluators if devices == (CPU,) else len(devices)


def _remote_workers(task: TaskSpec, language: Language, line: Line) -> Workers:
    from evaluators.remote.near import RemoteBuilder, RemoteEvaluator  # noqa: PLC0415

    builder = RemoteBuilder(line)
    evaluator = RemoteEvaluator(line, builder)

    async def describe(own: Language | None = None) -> TaskDescription:
        return await evaluator.describe_task(task, own or language)

    return Workers(builder=builder, evaluator=evaluator, describe=describe)


def _kernel_workers(task: TaskSpec, language: Language, artifacts: Path, settings: WorkerSettings) -> Workers:
    from evaluators.build.builder import LocalBuilder  # noqa: PLC0415
    from evaluators.local import LocalEvaluator, SeveralEvaluators  # noqa: PLC0415

    check_baseline(settings)
    devices, isolation = devices_of(settings.device), settings.isolation
    evaluator: LocalEvaluator | SeveralEvaluators
    if devices == (CPU,):
        evaluator = LocalEvaluator(artifacts, slots=settings.evaluators, isolation=isolation)
        evaluator.begin(task)
    else:
        evaluator = SeveralEvaluators(
            [
                LocalEvaluator(artifacts, device=name, baseline=settings.baseline, isolation=isolation)
                for name in devices
            ]
        )

    async def describe(own: Language | None = None) -> TaskDescription:
        return await evaluator.describe_task(task, own or language)

    return Workers(builder=LocalBuilder(artifacts, isolation=isolation), evaluator=evaluator, describe=describe)
