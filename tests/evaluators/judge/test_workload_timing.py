"""What intervals on a CPU allow for."""

from __future__ import annotations

from evaluators.judge.workload_timing import between_processes


def test_processes_differ_the_more_the_less_pairs_say_and_never_by_less_than_on_a_quiet_host() -> None:
    assert between_processes(0.001, usual=0.02) == 0.02
    assert 0.04 < between_processes(0.06, usual=0.02) < 0.06
    assert between_processes(0.06, usual=0.15) == 0.15
