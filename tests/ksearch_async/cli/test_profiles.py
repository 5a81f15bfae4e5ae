"""What `ksearch eval --profile` prints."""

from __future__ import annotations

import msgspec

from ksearch_async.cli.eval import as_object, lines_of, profile_objects, profile_table
from messages.verdicts import Interval, Measured, ProfiledKernel, WorkloadProfile
from tests.ksearch_async.cli.test_eval import evaluated

OWN = ProfiledKernel(
    name="projection",
    launches=2,
    time_us=90.0,
    is_own=True,
    grid=(2, 256, 1),
    block=(256, 1, 1),
    registers=202,
    shared_bytes=221184,
    local_bytes=16,
    occupancy=0.125,
    waves=3.9,
)
LIBRARY = msgspec.structs.replace(OWN, name="at::native::copy<float>", launches=1, time_us=9.8, is_own=False)
FILL = ProfiledKernel(name="(fill)", launches=1, time_us=0.2, is_own=False)
PROFILE = WorkloadProfile(
    workload="large", span_us=125.0, busy_us=100.0, kernels_us=100.0, own_us=90.0, kernels=(OWN, LIBRARY, FILL)
)
MEASURED = Measured(
    timed=True,
    latency_us=1.0,
    reference_latency_us=2.0,
    speedup_vs_reference=2.0,
    speedup_interval=Interval(low=1.0, high=3.0),
    pairs=4,
)


def test_kernels_stand_in_columns_and_what_is_small_is_counted() -> None:
    shown = evaluated(msgspec.structs.replace(MEASURED, profile=(PROFILE,)))
    head, *table, rest = profile_table(shown.profile)
    lines = lines_of(shown)
    assert lines[lines.index(head) + 1] == table[0]
    assert head == (
        "profile    large: 125.0 us from the first kernel to the last, the GPU idle for 20%; 90% of it in the "
        "candidate's own kernels"
    )
    assert [" ".join(line.split()) for line in table] == [
        "share us launches blocks threads registers shared local occupancy waves of kernel",
        "90% 90.0 2 2x256 256 202 221184 16 12% 3.9 its own projection",
        "10% 9.8 1 2x256 256 202 221184 16 12% 3.9 library at::native::copy<float>",
    ]
    assert len({line.index(word) for line, word in zip(table, ("kernel", "projection", "at::"), strict=True)}) == 1
    assert rest.strip() == "and 1 more, 0.2% of it together"
    (many,) = profile_table((msgspec.structs.replace(PROFILE, kernels_us=200.0, left_out=40),))[-1:]
    assert many.strip() == "and 41 more, 50.1% of it together"
    (told,) = as_object(shown)["profile"]
    assert [told] == profile_objects(shown.profile)
    assert told["own_share"] == 0.9
    assert [kernel["name"] for kernel in told["kernels"]] == ["projection", "at::native::copy<float>", "(fill)"]


def test_a_profile_without_any_time_is_printed_too() -> None:
    empty = WorkloadProfile(span_us=0.0, busy_us=0.0, kernels_us=0.0, own_us=0.0, kernels=(FILL,), left_out=2)
    assert profile_table((empty,))[-1].strip() == "and 2 more, 0.0% of it together"


def test_nothing_is_said_where_nothing_was_recorded() -> None:
    assert profile_table(evaluated(MEASURED).profile) == []
    assert "profile" not in as_object(evaluated(MEASURED))
