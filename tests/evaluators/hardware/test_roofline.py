"""How long a task must take: a bound where it is one, and an estimate where not."""

from __future__ import annotations

import msgspec
import pytest

from evaluators.hardware.roofline import describe_roofline, roofline, share_text
from messages.tasks import Target, TaskDescription, TensorSpec

H200 = Target(arch="sm_90", march="", toolchain="t", device="NVIDIA H200")
MIB = 1 << 20


def task(*tensors: tuple[str, tuple[int, ...], str], flops: int = 0) -> TaskDescription:
    specs = tuple(TensorSpec(name=role, role=role, shape=shape, dtype=dtype) for role, shape, dtype in tensors)  # type: ignore[arg-type]
    return TaskDescription(
        task_id="t",
        name="t",
        language="cuda",
        tensors=specs,
        prompt="",
        entry_point="f",
        bytes_moved=1,
        flops=flops,
    )


def test_a_task_that_only_moves_memory_is_bound_by_what_it_reads() -> None:
    found = roofline(task(("input", (1200, MIB), "float32"), ("output", (1,), "float32")), H200)
    assert found is not None
    assert found.time_us == pytest.approx(1200 * MIB * 4 / 4800e9 * 1e6)
    assert (found.limited_by, found.is_bound) == ("memory", True)
    assert "lower bound" in describe_roofline(found)


def test_outputs_count_only_beyond_what_the_l2_can_hold_when_the_call_ends() -> None:
    small = roofline(task(("input", (MIB,), "float32"), ("output", (60 * MIB // 4,), "float32")), H200)
    large = roofline(task(("input", (MIB,), "float32"), ("output", (120 * MIB // 4,), "float32")), H200)
    assert small is not None
    assert large is not None
    assert small.memory_us == pytest.approx(4 * MIB / 4800e9 * 1e6)
    assert large.memory_us == pytest.approx(64 * MIB / 4800e9 * 1e6)


def test_of_inputs_that_are_read_in_part_only_that_part_counts() -> None:
    gathered = task(("input", (1200, MIB), "float32"), ("output", (MIB,), "float32"))
    found = roofline(msgspec.structs.replace(gathered, bytes_needed=604 * MIB), H200)
    assert found is not None
    assert found.time_us == pytest.approx(600 * MIB / 4800e9 * 1e6)


def test_counted_operations_make_an_estimate_that_is_not_called_a_bound() -> None:
    n = 8192
    product = task(
        ("input", (n, n), "bfloat16"), ("parameter", (n, n), "bfloat16"), ("output", (n, n), "bfloat16"), flops=2 * n**3
    )
    found = roofline(product, H200)
    assert found is not None
    assert found.rate == "bf16"
    assert found.time_us == pytest.approx(2 * n**3 / 989.4e12 * 1e6)
    assert not found.is_bound
    assert "no bound" in describe_roofline(found)
    single = roofline(msgspec.structs.replace(product, tensors=_as("float32", product)), H200)
    assert single is not None
    assert single.rate == "tf32"


def test_a_share_is_told_in_percent() -> None:
    found = roofline(task(("input", (1200, MIB), "float32")), H200)
    assert found is not None
    assert share_text(found, found.time_us / 0.73) == f"73 % of the roofline ({found.time_us:.2f} us, memory)"


def test_where_the_device_or_the_task_is_unknown_there_is_no_roofline() -> None:
    known = task(("input", (MIB,), "float32"))
    cpu = Target(arch="x86_64", march="x86-64-v3", toolchain="g++", device="AMD EPYC")
    unknown = Target(arch="sm_90", march="", toolchain="t", device="NVIDIA H20")
    assert roofline(known, cpu) is None
    assert roofline(known, unknown) is None
    assert roofline(task(), H200) is None


def _as(dtype: str, description: TaskDescription) -> tuple[TensorSpec, ...]:
    return tuple(msgspec.structs.replace(tensor, dtype=dtype) for tensor in description.tensors)
