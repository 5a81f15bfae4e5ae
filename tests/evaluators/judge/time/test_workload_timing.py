"""What intervals on a CPU allow for."""

from __future__ import annotations

from evaluators.judge.time.cpu import between_processes
from evaluators.judge.time.sampling import Timing
from messages.verdicts import Interval


def open_by(half_width: float, *, pairs: int = 40) -> Timing:
    interval = Interval(low=1, high=1)
    return Timing(
        pairs=pairs, latency_us=1, reference_latency_us=1, speedup=1, interval=interval, half_width=half_width
    )


def test_processes_differ_the_more_the_less_pairs_say_and_never_by_less_than_on_a_quiet_host() -> None:
    assert between_processes(open_by(0.001), usual=0.02) == 0.02
    assert 0.12 < between_processes(open_by(0.06), usual=0.02) < 0.18
    assert between_processes(open_by(0.06), usual=0.15) == 0.15


def test_more_pairs_of_one_process_say_no_more_of_others() -> None:
    known_better = between_processes(open_by(0.03, pairs=160), usual=0.02)
    assert known_better == between_processes(open_by(0.06), usual=0.02)
    assert between_processes(open_by(0.06, pairs=12), usual=0.02) == between_processes(open_by(0.06), usual=0.02)
