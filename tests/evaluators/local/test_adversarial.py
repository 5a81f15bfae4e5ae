"""Candidates that are right on nominal data, or once: what is mixed into the calls finds them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from evaluators.judge.data.families import NEARLY_EQUAL, NEARLY_EQUAL_PARAMETERS
from messages.tasks import Tolerance
from messages.verdicts import Crashed, Wrong
from tests.evaluators.judging import Judging
from tests.evaluators.words import RIGHT, SLEEPY_TASK, SMALL_TASK, after, before

pytestmark = pytest.mark.anyio

WHEN_TIMED = "#include <sched.h>\n"
IS_TIMED = "sched_getscheduler(0) != SCHED_IDLE"
"""Checks are scheduled as idle, timings are not: which a candidate may find out, and gains nothing by."""


async def mistake(judge: Judging, text: str) -> Wrong:
    verdict = await judge(text, SLEEPY_TASK)
    assert isinstance(verdict, Wrong), verdict
    return verdict


@pytest.mark.long
async def test_a_cache_that_looks_at_samples_is_caught_by_data_that_nearly_equals_an_earlier_call(
    judge: Judging,
) -> None:
    find = """
        static std::vector<std::vector<float>> keys, kept;
        std::vector<float> key;
        for (int i = 0; i < 16384; i += 1024) key.push_back(x[i]);
        for (size_t k = 0; k < keys.size(); ++k)
            if (keys[k] == key) { for (int i = 0; i < 16384; ++i) y[i] = kept[k][i]; return 0; }
        usleep(2000);
    """
    keep = f"if ({IS_TIMED}) {{ keys.push_back(key); kept.emplace_back(y, y + 16384); }}"
    verdict = await mistake(judge, WHEN_TIMED + before(find).replace("// after", keep))
    # It looks at no parameter either.
    assert verdict.family in {f"{family}, timed call" for family in (NEARLY_EQUAL, NEARLY_EQUAL_PARAMETERS)}
    assert verdict.wrong_elements >= 1


async def test_a_shortcut_for_nominal_values_is_caught_by_spikes(judge: Judging) -> None:
    clipped = RIGHT.replace(
        "sum += std::fabs(x[r * columns + c])", "sum += std::fmin(std::fabs(x[r * columns + c]), 8)"
    )
    verdict = await mistake(judge, clipped)
    assert verdict.family == "spikes"


async def test_a_result_that_is_right_on_the_second_try_only_is_told_from_a_plain_mistake(judge: Judging) -> None:
    late = f"""
        static float last = -1, old[16384];
        const bool is_new = x[77] != last;
        last = x[77];
        if (is_new && {IS_TIMED}) {{ for (int i = 0; i < 16384; ++i) y[i] = old[i]; return 0; }}
    """
    verdict = await mistake(judge, WHEN_TIMED + before(late))
    assert "right when the same inputs were sent again" in verdict.reason
    assert verdict.patterns[0] == "late or kept"


async def test_a_plain_mistake_when_timed_is_not_called_late(judge: Judging) -> None:
    verdict = await mistake(judge, WHEN_TIMED + after(f"if ({IS_TIMED}) y[5] = 7;"))
    assert "timed call" in verdict.family
    assert "sent again" not in verdict.reason


async def test_other_bits_on_the_same_inputs_are_accepted_and_marked(judge: Judging) -> None:
    verdict = await judge.measured(
        before("usleep(2000);").replace("// after", "static int n = 0; y[3] *= 1 + 2e-7f * ++n;"), SLEEPY_TASK
    )
    assert verdict.deterministic is False
    assert any("not deterministic" in note for note in verdict.notes)


async def test_another_result_on_the_same_inputs_is_wrong(judge: Judging) -> None:
    again = "static float first = x[5]; static int calls = 0; if (calls++ && x[5] == first) y[3] = 0;"
    verdict = await mistake(judge, after(again))
    assert "on the same inputs it was right before" in verdict.reason
    assert verdict.family == "given"


@pytest.mark.long
async def test_lower_precision_that_a_profile_lets_through_is_noted(judge: Judging) -> None:
    half = "usleep(2000); for (int i = 0; i < 16384; ++i) y[i] = static_cast<float>(static_cast<_Float16>(y[i]));"
    assert isinstance(await judge(after(half)), Wrong)
    verdict = await judge.measured(after(half), replace(SLEEPY_TASK, tolerance=Tolerance(profile="flashinfer")))
    assert any(note.startswith("precision_downgrade") for note in verdict.notes)
    assert "tolerance: flashinfer" in verdict.notes
    full = after("usleep(2000);")
    verdict = await judge.measured(full, replace(SLEEPY_TASK, tolerance=Tolerance(profile="flashinfer")))
    assert not any(note.startswith("precision_downgrade") for note in verdict.notes)


@pytest.mark.long
async def test_what_a_candidate_leaves_behind_its_outputs_is_gone_before_the_next_one(judge: Judging) -> None:
    odd = replace(SMALL_TASK, text=SMALL_TASK.text.replace("(64, 256)", "(100, 37)").replace("[256]", "[37]"))
    assert odd.text != SMALL_TASK.text
    place = "y[rows * columns + 1024]"  # behind the guard, before the page's end
    left = await judge(after(f"{place} = 4711.0f;"), odd)
    found = await judge(before(f"if ({place} == 4711.0f) return 7;"), odd)
    assert not isinstance(left, Crashed | Wrong), left
    assert not isinstance(found, Crashed | Wrong), found


async def test_a_cache_that_looks_at_samples_of_parameters_is_caught(judge: Judging) -> None:
    kept = """
        static std::vector<float> key, seen;
        std::vector<float> now;
        for (int i = 0; i < columns; i += 64) now.push_back(weight[i]);
        if (now != key) { key = now; seen.assign(weight, weight + columns); }
        weight = seen.data();
        usleep(2000);
    """
    verdict = await mistake(judge, before(kept))
    # Of two calls whose parameters look alike to it the second is wrong, whichever of them has the nearly equal ones.
    assert verdict.family.endswith(", timed call")
