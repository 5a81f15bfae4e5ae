"""What a vendor's GPUs must do for an evaluator: a class of tests per vendor derives from this. Needs such a GPU.

`evaluators/hardware/vendors/base.py` has the words for it; docs/design/0011-vendors.md says how to bring another
vendor.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import ClassVar

import pytest
import torch

from evaluators.hardware.vendors.base import Clock, DeviceContext, Facts, Hold, SharedArea

ROOT = str(Path(__file__).parents[4])
SIDE = "tests.evaluators.hardware.vendors.side"
SIZE_BYTES = 64 << 20
LONG_NS, SHORT_NS = 8_000_000, 150_000
LOOK_NS, GAP_NS = 3_000_000, 100_000
MANY = 3000
"""Fills: more than can be queued, so that some turns of them are left when the last one is."""


class Side:
    """A process that has mapped the same memory."""

    def __init__(self, package: str, area: SharedArea) -> None:
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                SIDE,
                package,
                str(area.fd),
                str(area.size_bytes),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(area.fd,),
            env={**os.environ, "PYTHONPATH": ROOT},
        )
        assert self._answer() == "ready"

    def ask(self, line: str) -> str:
        self.tell(line)
        return self._answer()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def spans(self) -> tuple[int, int]:
        """Ask for an empty span. Returns its time by the GPU's clock, and what the asking took, in ns."""
        span_ns, took_ns = self.ask("span").split()
        return int(span_ns), int(took_ns)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


class VendorContract:
    """Derive, and name the package."""

    package: ClassVar[str]

    @pytest.fixture
    def driver(self) -> ModuleType:
        return importlib.import_module(f"{self.package}.driver")

    @pytest.fixture
    def context(self, driver: ModuleType) -> DeviceContext:
        found: DeviceContext = driver.Context()
        return found

    @pytest.fixture
    def area(self, driver: ModuleType, context: DeviceContext) -> SharedArea:
        found: SharedArea = driver.SharedMemory(context, SIZE_BYTES)
        return found

    @pytest.fixture
    def memory(self, area: SharedArea) -> torch.Tensor:
        view: Callable[[int, int], torch.Tensor] = importlib.import_module(f"{self.package}.tensors").view_memory
        return view(area.address, area.size_bytes)

    @pytest.fixture
    def side(self, area: SharedArea) -> Iterator[Side]:
        side = Side(self.package, area)
        yield side
        side.kill()

    def test_a_gpu_says_what_it_is_and_that_it_works(self) -> None:
        facts: Facts = importlib.import_module(f"{self.package}.facts").gpu_facts("cuda:0")
        assert facts.name
        assert re.fullmatch(r"[0-9a-f]{32}", facts.uuid)
        assert re.fullmatch(r"[a-z]+_?[0-9a-z]+", facts.arch)
        assert 1e11 < facts.memory_bytes_per_s < 1e14
        assert importlib.import_module(f"{self.package}.probe").ails("cuda:0") == ""

    def test_memory_is_at_least_what_was_asked_for_and_torch_sees_it(
        self, area: SharedArea, memory: torch.Tensor
    ) -> None:
        assert area.size_bytes >= SIZE_BYTES
        assert memory.shape == (area.size_bytes,)
        assert (memory.dtype, memory.data_ptr()) == (torch.uint8, area.address)

    def test_processes_see_what_the_others_write_and_one_that_dies_takes_nothing_along(
        self, context: DeviceContext, memory: torch.Tensor, side: Side
    ) -> None:
        memory.fill_(3)
        context.synchronize()
        assert int(side.ask("sum")) == 3 * memory.numel()
        assert side.ask("fill 5") == "done"
        assert int(memory.long().sum()) == 5 * memory.numel()
        side.kill()
        assert int(memory.long().sum()) == 5 * memory.numel()

    def test_a_span_is_the_time_of_the_work_between_on_whichever_stream_it_is(
        self, driver: ModuleType, context: DeviceContext, memory: torch.Tensor
    ) -> None:
        clock: Clock = driver.SpanClock(context, context.make_stream())
        assert median(self._span_ns(clock, context, memory, 0) for _ in range(9)) < SHORT_NS
        few = median(self._span_ns(clock, context, memory, 50) for _ in range(9))
        many = median(self._span_ns(clock, context, memory, 400) for _ in range(9))
        assert 6 < many / few < 10

    @pytest.mark.parametrize("span_ns", [400_000, 1_500_000])
    def test_a_hold_takes_as_long_as_it_is_told_whatever_comes_before_it(
        self, driver: ModuleType, context: DeviceContext, memory: torch.Tensor, span_ns: int
    ) -> None:
        hold: Hold = driver.Hold(context)
        clock: Clock = driver.SpanClock(context, context.make_stream())
        hold.begin(span_ns)  # the first one loads its code
        context.synchronize()
        took_ns = []
        for number in range(20):
            # Queued behind another hold, so that a host which stops for a moment between launches is not in the span.
            hold.begin(LONG_NS)
            for _ in range(10 + 10 * (number % 2)):
                memory.fill_(1)
            clock.begin()
            hold.begin(span_ns)
            clock.end()
            context.synchronize()
            took_ns.append(clock.elapsed_ns())
        assert span_ns - 2_000 < min(took_ns)
        assert max(took_ns) < span_ns + 20_000

    def test_a_hold_says_for_how_long_another_process_had_its_turn(
        self, driver: ModuleType, context: DeviceContext, side: Side
    ) -> None:
        hold: Hold = driver.Hold(context)
        alone_ns, beside_ns = [], []
        for _ in range(20):
            hold.begin(LOOK_NS)
            alone_ns.append(hold.longest_gap_ns())
        for _ in range(9):
            side.ask(f"work {MANY}")
            hold.begin(LOOK_NS)
            beside_ns.append(hold.longest_gap_ns())
            side.ask("sum")
        assert max(alone_ns) < GAP_NS
        assert min(beside_ns) > GAP_NS

    def test_what_another_process_asks_for_waits_for_its_turn_and_no_wait_is_in_its_span(
        self, driver: ModuleType, context: DeviceContext, side: Side
    ) -> None:
        hold: Hold = driver.Hold(context)
        idle = [side.spans() for _ in range(9)]
        behind = []
        for _ in range(9):
            hold.begin(LONG_NS)
            behind.append(side.spans())
            context.synchronize()
        alone_ns = median(took_ns for _, took_ns in idle)
        assert alone_ns < LONG_NS / 20, "asking alone takes long"
        assert median(took_ns for _, took_ns in behind) > 4 * alone_ns, "it began beside the judge's work"
        assert max(span_ns for span_ns, _ in behind) < SHORT_NS, "the wait is in the span"

    def test_what_need_not_be_there_is_asked_for_without_an_error(self, context: DeviceContext) -> None:
        assert context.l2_bytes > 0
        context.forget_persisting_l2()
        context.keep_freed_memory()

    @staticmethod
    def _span_ns(clock: Clock, context: DeviceContext, memory: torch.Tensor, fills: int) -> int:
        """Return the span around fills on torch's default stream, which is not the clock's."""
        context.synchronize()
        clock.begin()
        for number in range(fills):
            memory.fill_(number % 7)
        clock.end()
        context.synchronize()
        return clock.elapsed_ns()
