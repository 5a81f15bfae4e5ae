from __future__ import annotations

import msgspec
import pytest

from actors.coder.evidence import LOG_CHARS, bounded_lines, evidence_of
from actors.coder.parse import parse_answer
from actors.coder.prompts import HISTORY_SHOWN, OUTCOME_CHARS, request_for, system_rules
from evaluators.hardware.profiles import describe_profile
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief, DescribedWorkload, Target, TensorSpec
from messages.verdicts import (
    Crashed,
    DidNotBuild,
    Interval,
    Measured,
    Outpaced,
    Quarantined,
    Rejected,
    TimedOut,
    Unstable,
    Verdict,
    Wrong,
)
from tests.actors.coder.jobs import APPLY, TASK, job, program
from tests.messages.examples import PROFILE

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


def test_the_base_is_shown_with_what_the_gpu_does_in_a_call_of_it() -> None:
    said = request_for(job(**BASE, base_profile=(PROFILE,))).prompt
    assert said.index("# Base code") < said.index(describe_profile([PROFILE])) < said.index("// good base")
    assert "What the GPU does" not in request_for(job(**BASE)).prompt


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Unstable(reason="±40 %", speedup_interval=Interval(low=1.0, high=2.0)), "time could not be told: ±40 %"),
        (Outpaced(reason="half as fast", speedup_interval=Interval(low=0.4, high=0.6)), "clearly slower than the best"),
    ],
)
def test_a_correct_attempt_without_an_exact_time_is_not_called_a_failure(verdict: Verdict, said: str) -> None:
    prompt = request_for(job(mode="improve", **BASE, current=program("other"), current_verdict=verdict)).prompt
    latest = prompt[prompt.index("# Your latest attempt") :]
    assert said in latest
    assert "failed" not in latest


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


H200 = Target(arch="sm_90", march="", toolchain="t", device="NVIDIA H200")
MATRIX = TensorSpec(name="x", role="input", shape=(4096, 4096), dtype="bfloat16")


def on_gpu(**changes: object) -> WriteCandidate:
    task = msgspec.structs.replace(TASK, language="cuda", tensors=(MATRIX,))
    return job(**{"language": "cuda", "task": task, "target": H200, **changes})


def test_the_device_is_told_after_the_task_with_what_it_has_and_how_long_the_task_must_take() -> None:
    parts = request_for(on_gpu()).parts
    assert parts[1].startswith("# Hardware\n\nNVIDIA H200 (sm_90, Hopper).")
    assert "wgmma" in parts[1]
    assert "Roofline: 6.99 us, by memory (lower bound)." in parts[1]
    assert parts[2].startswith("# Action")


def test_each_of_several_workloads_has_a_roofline() -> None:
    each = tuple(
        DescribedWorkload(name=name, tensors=(msgspec.structs.replace(MATRIX, shape=(rows, 4096)),), bytes_moved=1)
        for name, rows in (("short", 4096), ("long", 40960))
    )
    task = msgspec.structs.replace(TASK, tensors=(MATRIX,), workloads=each)
    told = request_for(on_gpu(task=task)).parts[1]
    assert "- workload short: Roofline: 6.99 us" in told
    assert "- workload long: Roofline: 69.91 us" in told


def test_a_measured_attempt_is_told_how_near_the_roofline_it_is() -> None:
    verdict = msgspec.structs.replace(SLOWER, latency_us=13.98)
    prompt = request_for(on_gpu(mode="improve", **BASE, current=program("slow"), current_verdict=verdict)).prompt
    assert "14.0 us; 50 % of the roofline (6.99 us, memory)." in prompt


def test_a_program_has_no_hardware_to_be_fitted_to() -> None:
    task = msgspec.structs.replace(TASK, language="python", entry_point="")
    assert "# Hardware" not in request_for(on_gpu(language="python", task=task)).prompt


def test_two_parents_are_both_shown_with_what_each_reached() -> None:
    prompt = request_for(job(**BASE, second=program("the other"), second_outcome="measured: 3.00x")).prompt
    assert (
        prompt.index("// good base") < prompt.index("# Code of another branch, to merge") < prompt.index("// the other")
    )
    assert "Also known good (measured: 3.00x)" in prompt
    assert "than the base code (measured: 2.00x" in prompt
    assert "Merge the two programs as the action says" in prompt


def test_what_people_say_comes_before_the_action_and_does_not_pass_for_a_heading() -> None:
    parts = request_for(job(instructions=("No atomics.", "one\n# two"))).parts
    assert parts[1].endswith("- No atomics.\n- one\n  # two")
    assert parts[2].startswith("# Action")


def test_search_replace_blocks_are_asked_for_against_the_code_that_is_edited() -> None:
    asked = job(mode="debug", **BASE, current=program("broken"), edit_format="search-replace")
    request = request_for(asked)
    assert "<<<<<<< SEARCH" in request.system
    assert "with search/replace blocks against your latest attempt" in request.parts[-1]
    improve = request_for(job(mode="improve", **BASE, edit_format="search-replace"))
    assert "with search/replace blocks against the base code" in improve.parts[-1]
    assert improve.system == request.system
    whole = request_for(job(**BASE, edit_format="whole"))
    assert "SEARCH" not in whole.system
    assert "Return the complete program" in whole.parts[-1]


def test_the_earlier_attempts_are_summed_up_by_fate_and_each_takes_one_bounded_line() -> None:
    long = "wrong: " + "a word " * 200
    history = (
        AttemptBrief(number=1, fate="unusable", outcome="unusable: first\nsecond"),
        AttemptBrief(number=2, fate="wrong", outcome=long),
        AttemptBrief(number=3, fate="wrong", outcome="wrong: off"),
    )
    section = next(part for part in request_for(job(history=history)).parts if part.startswith("# Earlier"))
    assert "3 so far: 2 wrong, 1 unusable." in section
    assert "1. unusable: first second\n" in section
    assert all(len(line) < OUTCOME_CHARS + 10 for line in section.split("\n"))


def test_lines_of_the_candidate_that_an_error_names_are_quoted() -> None:
    verdict = DidNotBuild(reason="kernel.cpp:2:5: error: no x", log="kernel.cpp:2:5: error: no x\n/usr/x.h:1: note")
    told = evidence_of(verdict, program("a marker"))
    assert told.endswith("named there:\n\n    kernel.cpp:2: int ksearch_run(void) { return 0; }")
    assert "named there" not in evidence_of(DidNotBuild(reason="kernel.cpp:99: error"), program("x"))


def test_of_a_crashs_long_log_beginning_and_end_are_shown() -> None:
    log = "\n".join(f"line {n}" for n in range(2000))
    told = evidence_of(Crashed(reason="signal 11", stage="timing", log=log))
    assert len(told) < 2 * LOG_CHARS
    assert "line 0\n" in told
    assert told.endswith("line 1999")
    assert "more lines)" in told


def test_a_line_of_thousands_of_characters_is_cut_and_the_others_stay() -> None:
    told = evidence_of(DidNotBuild(reason="x", log="a" * 5000 + "\nkernel.cpp:1: note"))
    assert "… (4700 more characters)" in told
    assert "kernel.cpp:1: note" in told


def test_a_wrong_result_of_several_workloads_names_the_one() -> None:
    assert evidence_of(Wrong(reason="off", workload="odd")).startswith("Its output is wrong on the workload 'odd': off")


@pytest.mark.parametrize("kind", ["wrong", "outpaced", "measured"])
def test_what_a_candidate_printed_is_told_bounded(kind: str) -> None:
    printed = "row 3: 1.5\n" + "x" * 5000 + "\nlast words"
    interval = Interval(low=0.1, high=0.2)
    kinds: dict[str, Verdict] = {
        "wrong": Wrong(reason="off", printed=printed),
        "outpaced": Outpaced(reason="slow", speedup_interval=interval, printed=printed),
        "measured": Measured(timed=False, printed=printed),
    }
    verdict = kinds[kind]
    told = evidence_of(verdict)
    assert "What it printed:\n\n    row 3: 1.5\n" in told
    assert told.endswith("    last words")
    assert len(told) < 1200
    assert "printed" not in evidence_of(Wrong(reason="off", printed=" \n"))
