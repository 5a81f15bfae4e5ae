"""Candidates of a task with several workloads: real compiler, real judges."""

from __future__ import annotations

import re
import textwrap

import pytest
from msgspec.structs import replace

from evaluators.judge.data.distributions import ADVERSARIAL
from evaluators.judge.data.families import CENTRED, GIVEN, PERTURBED, SPIKES
from messages.tasks import TaskSpec, Workload
from messages.verdicts import Crashed, Measured, Outpaced, Unstable, Wrong, workload_lines
from tests.evaluators.judging import Judging
from tests.evaluators.patience import patiently
from tests.evaluators.words import RIGHT, after, before

pytestmark = pytest.mark.anyio

SHAPES = TaskSpec(
    name="shapes",
    source="kernelbench",
    text=textwrap.dedent("""
        import time
        import torch
        from torch import nn

        class Model(nn.Module):
            def __init__(self, columns):
                super().__init__()
                self.weight = nn.Parameter(1 + 0.1 * torch.randn(columns))

            def forward(self, x):
                time.sleep(0.004)
                return x * self.weight / (1 + x.abs().mean(dim=-1, keepdim=True))

        def get_inputs(rows, columns):
            return [torch.rand(rows, columns)]

        def get_init_inputs(columns):
            return [columns]
    """),
    workloads=(
        Workload(name="wide", dimensions={"rows": 8, "columns": 512}),
        Workload(name="long", dimensions={"rows": 96, "columns": 64}),
        Workload(name="odd", dimensions={"rows": 37, "columns": 61}, hidden=True),
    ),
)


async def test_one_program_is_checked_and_timed_on_each_workload(judge: Judging) -> None:
    verdict = await judge.measured(before("usleep(rows == 8 ? 2000 : 500);"), SHAPES)
    assert {check.workload for check in verdict.checks} == {"wide", "long"}
    by_name = {one.name: one for one in verdict.workloads}
    assert by_name["wide"].speedup_vs_reference < by_name["long"].speedup_vs_reference
    assert verdict.speedup_interval is not None
    low = (by_name["wide"].speedup_interval.low * by_name["long"].speedup_interval.low) ** 0.5
    assert verdict.speedup_interval.low == pytest.approx(low)
    assert [line.split(":")[0] for line in workload_lines(verdict)] == ["wide", "long"]


async def test_screening_checks_all_but_the_cheapest_workload_in_brief(judge: Judging) -> None:
    verdict = await judge.measured(before("usleep(500);"), SHAPES)
    families: dict[str, list[str]] = {"wide": [], "long": []}
    for check in verdict.checks:
        families[check.workload].append(check.family)
    brief, whole = sorted(families.values(), key=len)
    assert whole[:4] == [GIVEN, CENTRED, SPIKES, GIVEN]
    assert whole[-1] == PERTURBED
    assert len(whole) > 7
    assert brief[0] == GIVEN
    assert len(brief) == 2
    assert brief[1] in {CENTRED, *ADVERSARIAL}


async def test_what_is_right_on_one_shape_and_wrong_on_another_is_wrong_there(judge: Judging) -> None:
    verdict = await judge(after("if (columns == 64) y[3] += 1;"), SHAPES)
    assert isinstance(verdict, Wrong), verdict
    assert verdict.workload == "long"
    assert verdict.reason.startswith("workload 'long': 1 of 6144 elements")


async def test_what_a_program_keeps_from_one_shape_is_found_wrong_on_the_next(judge: Judging) -> None:
    kept = RIGHT.replace("const int64_t rows =", "static const int64_t columns = shapes[2][1]; const int64_t rows =")
    kept = kept.replace("rows = shapes[2][0], columns = shapes[2][1];", "rows = shapes[2][0];")
    verdict = await judge(kept, SHAPES)
    assert isinstance(verdict, Wrong | Crashed), verdict
    assert verdict.workload
    assert "writes to its inputs" not in verdict.reason


async def test_a_hidden_shape_refutes_what_was_written_for_the_shown_ones_and_is_not_told(judge: Judging) -> None:
    special = after("if (rows != 8 && rows != 96) y[3] += 1;")
    assert isinstance(await judge(special, SHAPES), Measured | Unstable)  # right; calls are short
    verdict = await judge(special, SHAPES, purpose="confirm")
    assert isinstance(verdict, Wrong), verdict
    assert "held-out" in verdict.reason
    assert (verdict.workload, verdict.elements, verdict.first_wrong) == ("", 0, ())
    assert not any(word in str(verdict) for word in ("37", "61", "odd"))


READS_ITS_ORDERS = """#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
""" + before("""
    static char text[65536];
    const long count = read(open("/proc/self/cmdline", O_RDONLY), text, sizeof text);
    for (long i = 0; i < count; ++i) text[i] = text[i] ? text[i] : ' ';
    fprintf(stderr, "%s", strstr(text, "inputs_bytes"));
    fflush(stderr);
    _exit(3);
""")


async def test_nothing_of_a_hidden_shape_is_where_a_candidate_is_screened(judge: Judging) -> None:
    verdict = await judge(READS_ITS_ORDERS, SHAPES)
    alone = await judge(READS_ITS_ORDERS, replace(SHAPES, workloads=SHAPES.workloads[:2]))
    assert isinstance(verdict, Crashed), verdict
    assert isinstance(alone, Crashed), alone
    assert "[96,64]" in verdict.log
    assert "[37,61]" not in verdict.log
    # A large one would show in the size of the memory.
    huge = Workload(name="huge", dimensions={"rows": 3000, "columns": 611}, hidden=True)
    verdict = await judge(READS_ITS_ORDERS, replace(SHAPES, workloads=(*SHAPES.workloads[:2], huge)))
    assert isinstance(verdict, Crashed), verdict
    assert _sizes(verdict) == _sizes(alone)


def _sizes(verdict: Crashed) -> list[str]:
    return re.findall(r'"(?:in|out)puts_bytes":\d+', verdict.log)


async def test_what_a_program_has_seen_of_a_hidden_shape_it_cannot_tell_on_a_shown_one(judge: Judging) -> None:
    seen = "static int64_t seen = 0; if (rows != 8 && rows != 96) seen = rows * 1000 + columns;"
    tells = before(f'{seen} if (seen && rows != 37) {{ fprintf(stderr, "%ld", seen); return (int)seen; }}')
    verdict = await judge(tells, SHAPES, purpose="confirm")
    assert isinstance(verdict, Crashed), verdict
    assert "held-out" in verdict.reason
    assert "37061" not in str(verdict)


@pytest.mark.long
async def test_a_program_that_is_slow_on_one_shape_is_outpaced_by_the_mean_and_says_where(judge: Judging) -> None:
    slow = before("usleep(rows == 8 ? 30000 : 500);")
    verdict = await patiently(lambda: judge(slow, SHAPES, keep_above=5.0))
    assert isinstance(verdict, Outpaced), verdict
    assert [line.split(":")[0] for line in workload_lines(verdict)] == ["wide", "long"]


async def test_one_named_workload_is_judged_as_if_it_had_no_name(judge: Judging) -> None:
    verdict = await judge.measured(before("usleep(2000);"), replace(SHAPES, workloads=SHAPES.workloads[:1]))
    assert verdict.workloads == ()
    assert {check.workload for check in verdict.checks} == {""}
    assert not any("workload" in note for note in verdict.notes)
