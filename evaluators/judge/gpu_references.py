"""The baselines of one workload on a GPU: what they compute on, what their calls begin behind, what they take.

They have inputs of their own, in memory that no candidate maps: what a candidate leaves running on the GPU cannot have
the reference compute something else than was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from evaluators.judge.baseline import KEEP
from evaluators.judge.families import DataSet
from evaluators.judge.gpu_baseline import GpuBaselineSide
from evaluators.judge.gpu_clocks import Seen, lower_quartile
from evaluators.judge.gpu_cover import Cover, may_wait
from evaluators.judge.memory import SharedArea
from evaluators.judge.problem import Problem, Tensors

_EMPTY_CALLS = 20


class GpuReferences:
    """The eager reference, and perhaps a second baseline."""

    def __init__(
        self,
        baselines: Sequence[GpuBaselineSide],
        given: SharedArea,
        problem: Problem,
        cover: Cover,
        touch: Callable[[int], None],
    ) -> None:
        """Begin; nothing is computed before `warm_up`.

        Args:
            baselines: the eager reference, and perhaps another one.
            given: where their inputs lie. Other workloads' use the same memory.
            problem: what they compute.
            cover: what every timed call begins behind.
            touch: does with the GPU what comes before any call, given how long a cover that begins behind, in us.
        """
        self._baselines = baselines
        self._given, self._problem = given, problem
        self._cover, self._touch = cover, touch
        self._covers_us: dict[GpuBaselineSide, int] = {}
        self.alone_ns = 0.0
        """What a call of the reference takes before any candidate ran."""

    def warm_up(self, data: DataSet, calls: int) -> None:
        """Begin to compute, find out what calls best begin behind, and what the reference takes.

        Args:
            data: on which.
            calls: of which it is the middle one.

        Raises:
            BaselineError: a worker is broken.
        """
        self.lay(data)
        for side in self._baselines:
            side.attach(self._given, self._problem)
        for side in self._baselines:
            self._covers_us[side] = self._cover.search().best_for(partial(self._behind_ns, side))
        self.alone_ns = max(1.0, median(self.now_ns() for _ in range(calls)))

    @property
    def eager(self) -> GpuBaselineSide:
        """The reference."""
        return self._baselines[0]

    @property
    def second(self) -> GpuBaselineSide | None:
        """The other baseline, if there is one."""
        return self._baselines[1] if len(self._baselines) > 1 else None

    @property
    def cover_us(self) -> int:
        """How long a cover calls of the reference begin behind, or `IDLE`."""
        return self._covers_us[self.eager]

    @property
    def may_wait(self) -> bool:
        """Whether the reference may be such that waits for the GPU in its midst."""
        return may_wait(self.cover_us, self.alone_ns)

    def lay(self, data: DataSet) -> None:
        """Write the inputs of the calls that follow: all, since another workload's may lie there."""
        self._given.forget()
        self._given.fill((*data.inputs, *data.state))
        self._given.settle()

    def now_ns(self) -> int:
        """Return what a call of the reference takes now, on what lies there.

        Raises:
            BaselineError: the worker is broken.
        """
        return self._behind_ns(self.eager, self.cover_us)

    def time(self, seen: Seen) -> None:
        """Time a call of each on what lies there, and an empty one of the reference.

        Raises:
            BaselineError: a worker is broken.
        """
        self._touch(self.cover_us)
        answer = self.eager.call()
        seen.reference.append(answer.span_ns)
        seen.add("reference", answer)
        self._touch(self.cover_us)
        seen.add("empty reference", self.eager.empty())
        if self.second is not None:
            seen.second.append(self._behind_ns(self.second, self._covers_us[self.second]))

    def copy_ns(self) -> float:
        """Return what copying outputs like the reference's takes.

        Raises:
            BaselineError: the worker is broken.
        """
        copies = [self.eager.ask(KEEP).elapsed_ns for _ in range(_EMPTY_CALLS)]
        nothing = [self.eager.empty().elapsed_ns for _ in range(_EMPTY_CALLS)]
        return max(0.0, lower_quartile(copies) - lower_quartile(nothing))

    def outputs(self) -> Tensors:
        """Return what the reference's last call came to; valid until the next.

        Raises:
            BaselineError: the worker is broken.
        """
        return self.eager.keep()

    def _behind_ns(self, side: GpuBaselineSide, cover_us: int) -> int:
        self._touch(cover_us)
        return side.call().span_ns
