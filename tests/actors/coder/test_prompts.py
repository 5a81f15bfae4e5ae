from __future__ import annotations

import pytest

from actors.coder.evidence import LOG_CHARS, bounded_lines, evidence_of
from actors.coder.parse import parse_answer
from actors.coder.prompts import HISTORY_SHOWN, request_for, system_rules
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief
from messages.verdicts import Crashed, DidNotBuild, Interval, Measured, Quarantined, Rejected, TimedOut, Wrong
from tests.actors.coder.jobs import APPLY, TASK, job, program

BASE = {"base": program("good base"), "base_outcome": "measured: 2.00x the reference [1.90, 2.10], 50.0 us"}
SLOWER = Measured(
    timed=True,
    latency_us=80.0,
    reference_latency_us=100.0,
    speedup_vs_reference=1.25,
    speedup_interval=Interval(low=1.2, high=1.3),
)
JOBS = [
    APPLY,
    job(**BASE),
    job(mode="debug", current=program("broken"), current_verdict=DidNotBuild(reason="no member 'y'")),
    job(mode="improve", **BASE),
    job(mode="improve", **BASE, current=program("regressed"), current_verdict=SLOWER),
]


@pytest.mark.parametrize("asked", JOBS)
def test_the_action_is_in_every_prompt(asked: WriteCandidate) -> None:
    prompt = request_for(asked).prompt
    assert "# Action n3: Vectorise the loop" in prompt
    assert "Use SIMD lanes." in prompt


@pytest.mark.parametrize("asked", JOBS)
def test_rules_and_task_come_first_so_that_prefixes_can_be_cached(asked: WriteCandidate) -> None:
    request = request_for(asked)
    assert request.parts[0] == TASK.prompt
    assert request.parts[1].startswith("# Action")
    assert request.system == request_for(APPLY).system
    assert request.request_id == asked.job_id


def test_a_first_attempt_without_a_base_starts_from_the_reference() -> None:
    assert "start from the reference" in request_for(APPLY).prompt


def test_the_base_is_shown_as_known_good_with_its_outcome() -> None:
    prompt = request_for(job(**BASE)).prompt
    assert "Known good (measured: 2.00x the reference" in prompt
    assert "// good base" in prompt


def test_a_slower_attempt_is_shown_as_such_after_the_base() -> None:
    prompt = request_for(JOBS[4]).prompt
    assert "not faster than the base (measured: 2.00x" in prompt
    assert "measured: 1.25x the reference [1.20, 1.30]" in prompt
    assert prompt.index("// good base") < prompt.index("// regressed")


def test_a_prompt_shows_code_in_the_format_that_answers_have() -> None:
    base = program("ticks ```` inside")
    candidate, complaint = parse_answer(
        request_for(job(base=base)).prompt, language="cpp", entry_point=TASK.entry_point
    )
    assert complaint == ""
    assert candidate == base


def test_a_long_history_shows_its_end_and_counts_the_rest() -> None:
    history = tuple(AttemptBrief(number=n, fate="wrong", outcome=f"wrong: case {n}") for n in range(1, 31))
    prompt = request_for(job(history=history)).prompt
    assert f"({30 - HISTORY_SHOWN} earlier attempts are not shown)" in prompt
    assert "30. wrong: case 30" in prompt
    assert "wrong: case 18" not in prompt


def test_a_correct_attempt_without_a_time_is_not_called_slow() -> None:
    untimed = Measured(timed=False)
    prompt = request_for(job(mode="improve", **BASE, current=program("same"), current_verdict=untimed)).prompt
    assert "correct; how fast it is was not measured" in prompt
    assert "not faster" not in prompt


def test_the_rules_of_a_language_speak_of_that_language() -> None:
    assert "```python path=kernel.py" in system_rules("triton")
    assert "@triton.jit" in system_rules("triton")
    assert "C++" not in system_rules("triton")
    assert "triton" not in system_rules("cpp")


def test_a_complaint_and_the_number_of_the_draw_are_passed_on() -> None:
    prompt = request_for(job(complaint="the answer holds no fence", sample=2)).prompt
    assert "could not be used\n\nthe answer holds no fence" in prompt
    assert "draw 2" in prompt
    assert "could not be used" not in request_for(APPLY).prompt


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (DidNotBuild(reason="no ';'", log="k.cpp:3: error"), ["did not build: no ';'", "    k.cpp:3: error"]),
        (Crashed(reason="signal 11", stage="timing", log="trace"), ["crashed during timing: signal 11", "trace"]),
        (TimedOut(reason="endless", stage="checking", limit_s=20.0), ["after 20 s during checking"]),
        (
            Wrong(reason="off", family="centred", wrong_elements=3, elements=12, first_wrong=(0, 9),
                  max_abs_error=0.5, patterns=("tail columns",)),
            ["3 of 12 elements", "25.0%", "[0, 9]", "0.5", "'centred'", "tail columns"],
        ),
        (Rejected(reason="opened a socket", rule="network"), ["rejected: opened a socket"]),
        (Quarantined(reason="too fast", speedup_interval=Interval(low=90, high=99)), ["quarantined: too fast"]),
    ],
)  # fmt: skip
def test_a_failure_tells_what_is_known_of_its_class(verdict: Wrong, said: list[str]) -> None:
    text = evidence_of(verdict)
    prompt = request_for(job(mode="debug", current=program("x"), current_verdict=verdict)).prompt
    assert text in prompt
    for words in said:
        assert words in text


def test_a_build_log_is_bounded_by_whole_lines() -> None:
    log = "\n".join(f"k.cpp:{n}: error: something is wrong here" for n in range(1000))
    shown = bounded_lines(log, LOG_CHARS)
    assert len(shown) < LOG_CHARS + 40
    *lines, rest = shown.split("\n")
    assert set(lines) <= set(log.split("\n"))
    assert rest == f"({1000 - len(lines)} more lines)"
    assert rest in evidence_of(DidNotBuild(reason="many", log=log))


def test_a_log_of_one_endless_line_is_cut_and_says_so() -> None:
    assert bounded_lines("x" * 100, 10) == "xxxxxxxxxx … (90 more characters)"
