"""What builds and judges candidates: chosen by where the task comes from, loaded only where it is used."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import anyio.to_thread
import msgspec

from evaluators.base import Builder, Evaluator
from evaluators.devices import CPU, devices_of
from evaluators.remote import modal_line
from evaluators.remote.modal_line import gpu_of
from evaluators.tolerances import STRICT, check_profile
from ksearch_async.config import API_KEY_VARIABLES, RunConfig, WorkerSettings
from ksearch_async.models import Dialect
from ksearch_async.refusals import refusal
from ksearch_async.role_settings import ROLE_KEY_VARIABLES
from messages.base import Language
from messages.errors import EvaluatorError
from messages.tasks import Candidate, LibraryCalls, Measure, Target, TaskDescription, TaskSpec

if TYPE_CHECKING:
    from evaluators.local import LocalEvaluator
    from evaluators.remote.near import Line
    from evaluators.several import SeveralEvaluators


class Describe(Protocol):
    """Says what models are told of the task."""

    async def __call__(self, language: Language | None = None, /) -> TaskDescription:
        """Return the description for candidates of a language; null: of the one that the workers are for.

        Raises:
            ConfigError: the task cannot be used.
            messages.errors.EvaluatorError: the judge is at fault.
        """


class Workers(msgspec.Struct, frozen=True, kw_only=True):
    """Who builds and judges."""

    builder: Builder
    evaluator: Evaluator
    describe: Describe


def read_task(config: RunConfig) -> TaskSpec:
    """Return the task that a configuration names.

    Raises:
        ConfigError: there is none, or it is no task.
    """
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
    # What a task says of itself holds unless people say otherwise.
    if config.tolerance != STRICT:
        task = with_tolerance(task, config.tolerance)
    if config.library_calls != "deny" or config.allow_library:
        task = with_library_calls(task, config.library_calls, config.allow_library)
    if config.measure != "device":
        task = with_measure(task, config.measure, device=config.workers.device if config.nats is None else None)
    check_baseline(config.workers)
    return with_threads(task, config.threads, device=config.workers.device) if config.threads else task


def with_tolerance(task: TaskSpec, profile: str) -> TaskSpec:
    """Return the task, judged by a tolerance profile.

    Raises:
        ConfigError: there is no such profile.
    """
    check_profile(profile)
    return msgspec.structs.replace(task, tolerance=msgspec.structs.replace(task.tolerance, profile=profile))


def with_library_calls(task: TaskSpec, library_calls: LibraryCalls, allowed: str) -> TaskSpec:
    """Return the task, with what of libraries candidates may call.

    Args:
        task: of kernels.
        library_calls: whether all is allowed.
        allowed: what is though the rest is not, with commas.

    Raises:
        ConfigError: there is no such operator, family or library.
    """
    from evaluators.policy.naming import parse_allowed  # noqa: PLC0415 - costs the start-up of every command

    rules = msgspec.structs.replace(task.rules, library_calls=library_calls, allowed=parse_allowed(allowed))
    return msgspec.structs.replace(task, rules=rules)


def with_measure(task: TaskSpec, measure: Measure, *, device: str | None) -> TaskSpec:
    """Return the task, with what counts as a call's latency on a GPU.

    Args:
        task: of kernels.
        measure: what counts.
        device: where candidates run, as `--device` names it; None: on other hosts.

    Raises:
        ConfigError: it makes no difference on this device.
    """
    if measure != task.rules.measure and device == CPU:
        raise refusal(f"--measure {measure} is for GPUs; on a CPU a call takes what it takes", "leave it out")
    return msgspec.structs.replace(task, rules=msgspec.structs.replace(task.rules, measure=measure))


def with_threads(task: TaskSpec, threads: int, *, device: str) -> TaskSpec:
    """Return the task, timed on so many threads of a CPU; 0: on all.

    Raises:
        ConfigError: the device is no CPU.
    """
    if threads and device != CPU:
        raise refusal(f"--threads is for CPUs, and --device is {device}", "leave it out")
    return msgspec.structs.replace(task, rules=msgspec.structs.replace(task.rules, threads=threads))


def check_threads_here(task: TaskSpec) -> None:
    """Refuse a task on more threads than this host has cores, where it is this host that judges.

    Raises:
        ConfigError: it is.
    """
    cores = len(os.sched_getaffinity(0))
    if task.rules.threads > cores:
        raise refusal(f"--threads {task.rules.threads}: this host gives {cores} cores", f"at most --threads {cores}")


def check_baseline(settings: WorkerSettings) -> None:
    """Refuse a second baseline where none is timed.

    Raises:
        ConfigError: the device is no GPU.
    """
    if settings.baseline and gpu_of(settings.device) is not None:
        raise refusal(f"--baseline {settings.baseline} is for GPUs of this host", "leave it out")
    if settings.baseline and settings.device == CPU:
        raise refusal(f"--baseline {settings.baseline} is for GPUs, and --device is {CPU}", "leave it out")


def is_task(name: str) -> bool:
    """Say whether this names a problem rather than a run: a bundled one, a source's, or a file."""
    from evaluators.tasks import is_bundled, names_source, split_path  # noqa: PLC0415

    return is_bundled(name) or names_source(name) or split_path(name)[0].is_file()


def check_model(task: TaskSpec, language: Language, dialect: Dialect) -> None:
    """Refuse a model that can do nothing for a task.

    Raises:
        ConfigError: says what to name instead.
    """
    check_language(task, language)
    if task.source != "program" and language == "python" and dialect == "offline":
        raise refusal("the built-in rules write no torch modules", "name a model: --model NAME; or use --language cpp")
    if task.source == "program" and dialect == "offline":
        raise refusal("the built-in rules write kernels and know nothing of programs", "name a model: --model NAME")


def check_language(task: TaskSpec, language: Language) -> None:
    """Refuse candidates in a language that a task leaves out.

    Raises:
        ConfigError: it does.
    """
    if task.languages and language not in task.languages:
        raise refusal(
            f"task {task.name!r} is for candidates in {', '.join(task.languages)}, not in {language}",
            f"use --language {task.languages[0]}",
        )


def initial_program(task: TaskSpec) -> Candidate | None:
    """Return the program that a search starts from, where it is a candidate like any other."""
    if task.source != "program":
        return None
    from evaluators.programs.task import initial_candidate  # noqa: PLC0415

    return initial_candidate(task)


async def find_target(task: TaskSpec, language: Language, device: str = "cpu") -> Target:
    """Say what this machine builds for; runs a compiler once, where there is one.

    Args:
        task: what candidates are for.
        language: what they are written in.
        device: `cpu`, `cuda:0`, or several GPUs: `cuda:0,cuda:1`.

    Raises:
        ConfigError: there is no usable compiler or device; or the devices differ.
    """
    if task.source == "program":
        from evaluators.programs.task import probe_interpreter  # noqa: PLC0415

        return probe_interpreter()
    from evaluators.target import probe_target  # noqa: PLC0415

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
        task: what they are to work on.
        language: what candidates are written in.
        artifacts: the store of what is built.
        settings: on which device, and how many at once.

    Raises:
        ConfigError: there is no such device, or no second baseline on it.
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
    """Return how many candidates are judged at once: as many as there are GPUs, or as many as was said.

    Raises:
        ConfigError: there is no such device.
    """
    if gpu_of(settings.device) is not None:
        return 1
    devices = devices_of(settings.device)
    return settings.evaluators if devices == (CPU,) else len(devices)


def _kernel_evaluator(artifacts: Path, settings: WorkerSettings) -> LocalEvaluator | SeveralEvaluators:
    from evaluators.local import LocalEvaluator  # noqa: PLC0415
    from evaluators.several import SeveralEvaluators  # noqa: PLC0415

    check_baseline(settings)
    devices = devices_of(settings.device)
    if devices == (CPU,):
        return LocalEvaluator(artifacts, slots=settings.evaluators, isolation=settings.isolation)
    baseline, isolation = settings.baseline, settings.isolation
    return SeveralEvaluators(
        [LocalEvaluator(artifacts, device=name, baseline=baseline, isolation=isolation) for name in devices]
    )


def _remote_workers(task: TaskSpec, language: Language, line: Line) -> Workers:
    from evaluators.remote.near import RemoteBuilder, RemoteEvaluator  # noqa: PLC0415

    builder = RemoteBuilder(line)
    evaluator = RemoteEvaluator(line, builder)

    async def describe(own: Language | None = None) -> TaskDescription:
        return await evaluator.describe_task(task, own or language)

    return Workers(builder=builder, evaluator=evaluator, describe=describe)


def _kernel_workers(task: TaskSpec, language: Language, artifacts: Path, settings: WorkerSettings) -> Workers:
    from evaluators.builder import LocalBuilder  # noqa: PLC0415
    from evaluators.local import LocalEvaluator  # noqa: PLC0415

    evaluator = _kernel_evaluator(artifacts, settings)
    if isinstance(evaluator, LocalEvaluator):
        evaluator.begin(task)

    async def describe(own: Language | None = None) -> TaskDescription:
        return await evaluator.describe_task(task, own or language)

    return Workers(
        builder=LocalBuilder(artifacts, isolation=settings.isolation), evaluator=evaluator, describe=describe
    )
