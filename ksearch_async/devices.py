"""What builders and evaluators of a node work with: this host's CPU, one of its GPUs, or a simulated device.

`device_of("cpu")`, `device_of("cuda:0")`, `device_of("simulated:2")`. Siblings: each can be probed, proves
itself, and opens its workers.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import isfinite
from pathlib import Path
from typing import Protocol

import anyio
import anyio.to_thread

from actors.bus.base import Bus
from evaluators.base import Builder, Evaluator
from evaluators.devices import CPU
from ksearch_async.refusals import refusal
from messages.base import Isolation, Language
from messages.errors import EvaluatorError
from messages.tasks import Target

_CPU_LANGUAGES: tuple[Language, ...] = ("cpp", "triton", "python")
_GPU_LANGUAGES: tuple[Language, ...] = ("triton", "cuda", "python")
SIMULATED_S = 0.2


class Device(Protocol):
    """One kind of device."""

    name: str
    """As `--device` says it."""
    languages: tuple[Language, ...]
    """What a node serves on it unless it is told otherwise; of these, what its host can do."""

    def describe(self) -> str:
        """Return its name as the system reports it; reads one small file at most."""

    async def probe(self, language: Language) -> Target:
        """Say what this host builds for in a language.

        Raises:
            messages.errors.EvaluatorError: it cannot; says what to install.
        """

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """Build what is known, in a store of its own within `artifacts`.

        Raises:
            messages.errors.EvaluatorError: says what went wrong.
        """

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """Build, check and time what is known to be right, and find wrong what is known to be wrong.

        Raises:
            messages.errors.EvaluatorError: says what went wrong.
        """

    def make_builder(self, bus: Bus, artifacts: Path) -> Builder:
        """Return a builder whose artifacts evaluators on other hosts can have."""

    def make_evaluator(self, bus: Bus, artifacts: Path, *, slots: int) -> Evaluator:
        """Return an evaluator that gets what builders on other hosts built."""


def device_of(text: str, isolation: Isolation = "auto") -> Device:
    """Return the device that `--device` names.

    Raises:
        ConfigError: there is none.
    """
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
            isolation: how candidates are kept from the host.
        """
        self.name = name
        self._isolation: Isolation = isolation
        self.languages = _CPU_LANGUAGES if name == CPU else _GPU_LANGUAGES

    def describe(self) -> str:
        """Return its name as the system reports it."""
        if self.name == CPU:
            from evaluators.languages.cpp.toolchain import cpu_model  # noqa: PLC0415 - each device loads what it needs

            return cpu_model()
        from evaluators.vendors.nvidia.facts import gpu_facts  # noqa: PLC0415

        return gpu_facts(self.name).name

    async def probe(self, language: Language) -> Target:
        """See `Device.probe`; runs a compiler once."""
        from evaluators.target import probe_target  # noqa: PLC0415

        return await anyio.to_thread.run_sync(probe_target, language, self.name)

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """See `Device.prove_builder`."""
        from evaluators.builder import LocalBuilder  # noqa: PLC0415
        from evaluators.proof import prove_builder  # noqa: PLC0415

        async with _empty_store(artifacts) as store:
            await prove_builder(LocalBuilder(store, isolation=self._isolation), language, target)

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """See `Device.prove_evaluator`."""
        from evaluators.builder import LocalBuilder  # noqa: PLC0415
        from evaluators.local import LocalEvaluator  # noqa: PLC0415
        from evaluators.proof import prove_evaluator  # noqa: PLC0415

        async with _empty_store(artifacts) as store:
            builder = LocalBuilder(store, isolation=self._isolation)
            evaluator = LocalEvaluator(store, device=self.name, slots=1, isolation=self._isolation)
            try:
                await prove_evaluator(builder, evaluator, language, target)
            finally:
                await evaluator.aclose()

    def make_builder(self, bus: Bus, artifacts: Path) -> Builder:
        """See `Device.make_builder`."""
        from actors.shipping import ShippingBuilder  # noqa: PLC0415
        from evaluators.builder import LocalBuilder  # noqa: PLC0415

        return ShippingBuilder(bus, LocalBuilder(artifacts, isolation=self._isolation), artifacts)

    def make_evaluator(self, bus: Bus, artifacts: Path, *, slots: int) -> Evaluator:
        """See `Device.make_evaluator`."""
        from actors.shipping import FetchingEvaluator  # noqa: PLC0415
        from evaluators.local import LocalEvaluator  # noqa: PLC0415

        evaluator = LocalEvaluator(artifacts, device=self.name, slots=slots, isolation=self._isolation)
        return FetchingEvaluator(bus, evaluator, artifacts)


class SimulatedDevice:
    """A device on which nothing is run: verdicts follow from a candidate's hash, after a fixed time."""

    name = "simulated"
    languages: tuple[Language, ...] = ("cpp", "triton")

    def __init__(self, seconds: float) -> None:
        """Make a device.

        Args:
            seconds: how long an evaluation takes.
        """
        self._seconds = seconds

    def describe(self) -> str:
        """Return what simulated devices are called."""
        return self.name

    async def probe(self, language: Language) -> Target:  # noqa: ARG002 - the same for all
        """Return the target of simulated devices."""
        from evaluators.simulated import SIMULATED  # noqa: PLC0415

        return SIMULATED

    async def prove_builder(self, language: Language, target: Target, artifacts: Path) -> None:
        """Have nothing to prove: nothing is built."""

    async def prove_evaluator(self, language: Language, target: Target, artifacts: Path) -> None:
        """Have nothing to prove: nothing is run."""

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
    """Lend a store for a proof: what was built before proves nothing. Should it be left over, it is swept as others."""
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
