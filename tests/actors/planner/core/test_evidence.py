"""What is kept of a verdict for the planner's model."""

from __future__ import annotations

from actors.planner.core.decide import MAX_CHARS, MAX_LINES, build_facts_of, evidence_of
from messages.events import Built, CandidateBuilt
from messages.facts import AttemptFinished, BuildRequested, WriteRequested
from messages.verdicts import DidNotBuild, Interval, Measured, Rejected, TimedWorkload
from tests.actors.planner.core.world import TARGET, candidate, inserts, measured, search, written


def test_a_build_s_errors_are_told_and_nothing_else_of_its_log() -> None:
    log = "included from k.cpp:1\nk.cpp:3:1: error: expected ';'\n   3 | int x\nk.cpp:4:1: error: more\nerror: 3"
    said = evidence_of(DidNotBuild(reason="expected ';'", log=log))
    assert said == ("k.cpp:3:1: error: expected ';'", "k.cpp:4:1: error: more")


def test_a_broken_rule_is_named() -> None:
    assert evidence_of(Rejected(reason="calls system()", rule="no processes")) == ("the rule: no processes",)


def test_what_is_told_is_bounded() -> None:
    interval = Interval(low=1.0, high=2.0)
    timed = tuple(
        TimedWorkload(
            name=f"{number} " + "x" * 500,
            latency_us=1.0,
            reference_latency_us=1.0,
            speedup_vs_reference=1.0,
            speedup_interval=interval,
        )
        for number in range(40)
    )
    said = evidence_of(Measured(timed=True, workloads=timed))
    assert 0 < len(said) <= MAX_LINES
    assert all(len(line) <= MAX_CHARS for line in said)


def test_what_a_compiler_says_of_kernels_reaches_the_attempt_that_was_evaluated() -> None:
    log = "warning: x\n" + "\n".join(f"kernel k{number}: 40 registers, 0 bytes spilled" for number in range(6))
    assert build_facts_of(log)[0] == "kernel k0: 40 registers, 0 bytes spilled"
    assert build_facts_of(log)[-1] == "(2 more kernels)"
    world = search()
    world.propose(inserts(1))
    world.give(written(world.requests(WriteRequested)[0].job_id, "a"))
    (build,) = world.requests(BuildRequested)
    outcome = Built(artifact_id="a", log=log)
    candidate_id = candidate("a").candidate_id
    world.give(CandidateBuilt(job_id=build.job_id, candidate_id=candidate_id, outcome=outcome, target=TARGET))
    world.evaluate("a", measured(1.0))
    (finished,) = (fact for fact in world.facts if isinstance(fact, AttemptFinished))
    assert finished.evidence[0] == "kernel k0: 40 registers, 0 bytes spilled"
