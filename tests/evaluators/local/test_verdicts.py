"""What candidates come to that are right, that are wrong, and that misbehave: real compiler, real judges."""

from __future__ import annotations

import textwrap

import psutil  # type: ignore[import-untyped]
import pytest

from messages.tasks import TaskSpec
from messages.verdicts import Crashed, Measured, Outpaced, TimedOut, Unstable, Wrong
from tests.evaluators.judging import Judging
from tests.evaluators.patience import patiently
from tests.evaluators.words import COLUMNS, RIGHT, ROWS, SLEEPY_TASK, TVM_FFI, after, before

pytestmark = pytest.mark.anyio

LARGE_TASK = TaskSpec(
    name="large",
    source="kernelbench",
    text=textwrap.dedent("""
        import torch

        class Model(torch.nn.Module):
            def forward(self, x):
                return x * 2

        def get_inputs():
            return [torch.rand(1024, 2048)]

        def get_init_inputs():
            return []
    """),
)
LARGE = """
    #include <cstdint>
    extern "C" int ksearch_run(const void* const* in, void* const* out, const int64_t* const*) {
        for (int64_t i = 0; i < 1024 * 2048; ++i) ((float*)out[0])[i] = 2 * ((const float*)in[0])[i];
        return 0;
    }
"""


async def crash(judge: Judging, text: str) -> Crashed:
    verdict = await judge(text)
    assert isinstance(verdict, Crashed), verdict
    return verdict


async def mistake(judge: Judging, text: str) -> Wrong:
    verdict = await judge(text)
    assert isinstance(verdict, Wrong), verdict
    return verdict


async def test_a_measured_candidate_comes_with_its_checks_and_how_it_was_timed(judge: Judging) -> None:
    verdict = await judge.measured(before("usleep(2000);"), SLEEPY_TASK)
    assert verdict.timed
    families = [check.family for check in verdict.checks]
    assert families[:4] == ["given", "centred", "spikes", "given"]
    assert families[-1] == "perturbed parameters"
    assert len(set(families[4:-1])) >= 3
    assert verdict.deterministic
    assert all(check.error_ratio <= 1 for check in verdict.checks)
    assert verdict.pairs >= 8
    assert verdict.speedup_interval is not None
    assert verdict.speedup_vs_reference is not None
    assert verdict.speedup_interval.low <= verdict.speedup_vs_reference <= verdict.speedup_interval.high
    assert any("family and seed" in note for note in verdict.notes)


async def test_a_candidate_that_is_clearly_slower_than_asked_for_is_stopped_early_with_its_interval(
    judge: Judging,
) -> None:
    verdict = await patiently(lambda: judge(before("usleep(2000);"), SLEEPY_TASK, keep_above=1000.0))
    assert isinstance(verdict, Outpaced), verdict
    assert verdict.speedup_interval.low <= verdict.speedup_interval.high < 1000.0
    assert "1e+03x that was to be reached" in verdict.reason


async def test_a_confirmation_is_measured_on_other_data_and_in_more_pairs(judge: Judging) -> None:
    first = await judge.measured(before("usleep(2000);"), SLEEPY_TASK)
    second = await judge.measured(before("usleep(2000);"), SLEEPY_TASK, purpose="confirm")
    assert second.pairs >= 16
    seeds = [next(note for note in verdict.notes if "seed)" in note) for verdict in (first, second)]
    assert seeds[0] != seeds[1]


@pytest.mark.long
async def test_the_reference_has_its_memory_before_it_is_timed(judge: Judging) -> None:
    verdict = await judge.measured(LARGE, LARGE_TASK)
    assert not [note for note in verdict.notes if "new memory" in note]


@pytest.mark.long
async def test_the_tvm_ffi_contract_is_called_as_well(judge: Judging) -> None:
    assert isinstance(await judge(TVM_FFI), Measured | Unstable)


async def test_an_exception_through_tvm_ffi_is_told(judge: Judging) -> None:
    verdict = await crash(judge, TVM_FFI.replace("// after", 'TVM_FFI_THROW(RuntimeError) << "no luck";'))
    assert "no luck" in verdict.log


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (RIGHT.replace("* scale;", "* scale * 0.5f;"), "constant factor: the output is 0.5 times"),
        (
            RIGHT.replace("c < columns; ++c) y", "c < columns - 6; ++c) y"),
            "tail columns: only columns 250 to 255 of 256",
        ),
        (RIGHT.replace("r < rows", "r < rows - 3"), "unwritten: 768 of 16384"),
        (
            RIGHT.replace("y[r * columns + c] =", "y[(r + 1) % rows * columns + c] ="),
            "off by one row: each row is one row late",
        ),
        (after("y[5] = std::sqrt(-1.0f);"), "NaN where the reference has none"),
    ],
)
async def test_a_wrong_output_is_told_with_its_pattern(judge: Judging, text: str, pattern: str) -> None:
    verdict = await mistake(judge, text)
    assert any(found.startswith(pattern) for found in verdict.patterns), verdict


async def test_the_first_wrong_element_is_named(judge: Judging) -> None:
    verdict = await mistake(judge, after("y[3 * columns + 7] = 100;"))
    assert verdict.first_wrong == (3, 7)
    assert (verdict.wrong_elements, verdict.elements) == (1, ROWS * COLUMNS)


async def test_a_shortcut_that_holds_for_the_given_inputs_only_is_caught_on_centred_ones(judge: Judging) -> None:
    verdict = await mistake(judge, RIGHT.replace("std::fabs(x[r * columns + c])", "x[r * columns + c]"))
    assert verdict.family == "centred"


async def test_parameters_that_are_ignored_are_caught(judge: Judging) -> None:
    kept = "static float w[4096]; static int n = 0; if (!n++) for (int i = 0; i < 256; ++i) w[i] = weight[i];"
    verdict = await mistake(judge, before(kept).replace("* weight[c]", "* w[c]"))
    assert verdict.family == "perturbed parameters"


async def test_an_output_kept_from_an_earlier_call_is_caught(judge: Judging) -> None:
    copy = "{ for (int i = 0; i < 16384; ++i) y[i] = old[i]; return 0; }"
    kept = f"static std::vector<float> old; if (!old.empty()) {copy}"
    verdict = await mistake(judge, before(kept).replace("// after", "old.assign(y, y + 16384);"))
    assert verdict.family != "given"


async def test_a_candidate_that_is_wrong_only_when_timed_is_wrong(judge: Judging) -> None:
    # Checks are scheduled as idle, timings are not.
    text = before("static int calls = 0; if (sched_getscheduler(0) != SCHED_IDLE && ++calls > 10) return 0;")
    verdict = await mistake(judge, "#include <sched.h>\n" + text)
    assert "timed call" in verdict.family


async def test_work_that_goes_on_after_the_call_has_returned_does_not_count(judge: Judging) -> None:
    late = "std::thread([=] { usleep(2000); y[7] = kept; }).detach();"
    verdict = await mistake(judge, after(f"const float kept = y[7]; y[7] = 1e9f; {late}"))
    assert verdict.first_wrong == (0, 7)


async def test_writing_beside_an_output_is_caught(judge: Judging) -> None:
    verdict = await mistake(judge, after("y[rows * columns] = 1;"))
    assert "bounds" in verdict.reason


async def test_a_precision_below_the_tasks_is_wrong(judge: Judging) -> None:
    half = "for (int i = 0; i < 16384; ++i) y[i] = static_cast<float>(static_cast<_Float16>(y[i]));"
    assert (await mistake(judge, after(half))).max_abs_error < 1e-3


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("volatile int* p = nullptr; *p = 1;", "SIGSEGV"),
        ("abort();", "SIGABRT"),
        ("exit(0);", "exit code 0"),
        ("return 7;", "returned 7"),
        ('throw std::runtime_error("no luck");', "SIGABRT"),
        ("const_cast<float*>(x)[3] = 1;", "writes to its inputs, which are mapped read-only"),
        ("mprotect((void*)x, 4096, PROT_READ | PROT_WRITE); const_cast<float*>(x)[3] = 1;", "SIGSEGV"),
        ("std::vector<char> all(size_t(8) << 30, 1); y[0] += all[9];", "SIGABRT"),
    ],
)
async def test_a_process_that_dies_is_a_crash_with_its_cause(judge: Judging, statement: str, reason: str) -> None:
    verdict = await crash(judge, before(statement))
    assert reason in verdict.reason
    assert verdict.stage == "first call"


async def test_what_a_crashing_candidate_printed_is_shown(judge: Judging) -> None:
    verdict = await crash(judge, before('throw std::runtime_error("no luck");'))
    assert "no luck" in verdict.log


async def test_an_endless_call_is_killed_at_its_limit(judge: Judging) -> None:
    verdict = await judge(before("for (;;) usleep(1000);"))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("first call", 1.0)


async def test_a_later_call_has_a_limit_of_its_own(judge: Judging) -> None:
    verdict = await judge(before("static int calls = 0; if (++calls == 3) for (;;) usleep(1000);"))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("call", 0.5)


async def test_printing_ten_megabytes_disturbs_nobody(judge: Judging) -> None:
    loud = 'for (int i = 0; i < 200000; ++i) puts("it says the same again and again, and so on, and so on");'
    assert isinstance(await judge(before(f"static int calls = 0; if (!calls++) {loud}")), Measured | Unstable)


async def test_a_grandchild_is_gone_after_the_verdict(judge: Judging) -> None:
    escape = "static int calls = 0; if (!calls++ && !fork()) { setsid(); if (!fork()) for (;;) sleep(60); _exit(0); }"
    assert isinstance(await judge(before(escape)), Measured | Unstable)
    below = psutil.Process().children(recursive=True)
    assert [child for child in below if any("runners.native" in part for part in child.cmdline())] == []
