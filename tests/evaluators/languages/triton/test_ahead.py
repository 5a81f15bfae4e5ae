"""Triton kernels are compiled for a GPU that is not there."""

from __future__ import annotations

from tempfile import gettempdir

import pytest

from evaluators.languages.triton.ahead import AheadReport, compile_ahead
from messages.base import ConfigError
from messages.tasks import TensorSpec
from tests.evaluators.languages.triton.words import RIGHT, after, before, inside, triton
from tests.evaluators.words import COLUMNS, ROWS

pytestmark = pytest.mark.anyio

TENSORS = (
    TensorSpec(name="x", role="input", shape=(ROWS, COLUMNS), dtype="float32"),
    TensorSpec(name="weight", role="parameter", shape=(COLUMNS,), dtype="float32"),
    TensorSpec(name="output", role="output", shape=(ROWS, COLUMNS), dtype="float32"),
)
TWO_KERNELS = (
    RIGHT.replace("def scale_rows", "def first(x_ptr):\n    tl.store(x_ptr, missing)\n\n\n@triton.jit\ndef scale_rows")
    + "    first[(1,)](y)\n    scale_rows[(rows,)](x, weight, y, columns, BLOCK=256, num_warps=8)\n"
)
AUTOTUNED = RIGHT.replace(
    "@triton.jit",
    "@triton.autotune([triton.Config({'BLOCK': 256}, num_warps=2), triton.Config({'BLOCK': 512})], key=['columns'])\n"
    "@triton.jit",
).replace(", BLOCK=triton.next_power_of_2(columns))", ")")


async def compiled(text: str, arch: str = "sm_90") -> AheadReport:
    return await compile_ahead(triton(text), TENSORS, arch=arch)


async def test_a_right_kernel_compiles_and_its_needs_are_told_once() -> None:
    again = "scale_rows[(rows,)](x, weight, y, columns, BLOCK=256)"
    report = await compiled(after(again))
    assert report.compiles
    assert report.reason == ""
    (kernel,) = report.kernels
    assert (kernel.name, kernel.warps, kernel.spilled_bytes) == ("scale_rows", 4, 0)
    assert kernel.registers is not None
    assert 8 <= kernel.registers <= 255
    assert kernel.shared_bytes is not None
    assert kernel.shared_bytes >= 4


@pytest.mark.long
async def test_each_kernel_is_told_for_itself_and_one_error_does_not_hide_the_next() -> None:
    report = await compiled(TWO_KERNELS)
    assert not report.compiles
    assert [(kernel.name, bool(kernel.error), kernel.warps) for kernel in report.kernels] == [
        ("scale_rows", False, 4),
        ("first", True, None),
        ("scale_rows", False, 8),
    ]
    assert report.reason.startswith("first: ")
    assert "missing is not defined" in report.reason


async def test_the_compilers_error_shows_the_source_and_no_path_of_this_host() -> None:
    report = await compiled(inside("y = y + tl.zeros((3,), tl.float32)"))
    assert "Shape element 0 must be a power of 2" in report.reason
    assert "y = y + tl.zeros((3,), tl.float32)" in report.kernels[0].error
    assert gettempdir() not in report.kernels[0].error
    assert "site-packages" not in report.kernels[0].error


async def test_integers_are_specialised_as_in_a_real_launch() -> None:
    """A stride of 1 is a constant in the kernel, so `tl.static_assert` can see it."""
    text = RIGHT.replace("weight_ptr, y_ptr, columns,", "weight_ptr, y_ptr, columns, one,").replace(
        "y, columns, BLOCK", "y, columns, x.stride(1), BLOCK"
    )
    assert (await compiled(text.replace("# kernel", "tl.static_assert(one == 1)"))).compiles
    assert not (await compiled(text.replace("# kernel", "tl.static_assert(columns == 256)"))).compiles


@pytest.mark.long
async def test_too_much_shared_memory_is_an_error_of_the_architecture() -> None:
    text = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(x, y, N: tl.constexpr):
    rows = tl.arange(0, N)
    place = rows[:, None] * N + rows[None, :]
    sums = tl.zeros((N, N), tl.float32)
    for _ in tl.range(0, 8, num_stages=4):
        sums = tl.dot(tl.load(x + place).to(tl.bfloat16), tl.load(x + place).to(tl.bfloat16), sums)
    tl.store(y + place, sums)


def ksearch_run(x, weight, y):
    product[(1,)](x, y, N=256, num_warps=8)
"""
    small = await compiled(text, "sm_89")
    assert not small.compiles
    assert "bytes of shared memory; a block of sm_89 may have 101376" in small.reason


async def test_of_an_autotuned_kernel_the_first_configuration_is_compiled() -> None:
    report = await compiled(AUTOTUNED)
    assert [(kernel.name, kernel.warps) for kernel in report.kernels] == [("scale_rows", 2)]
    assert report.compiles


async def test_of_an_autotuned_kernel_a_configuration_that_does_not_compile_is_passed_over() -> None:
    greedy = AUTOTUNED.replace("'BLOCK': 256", "'BLOCK': 250")
    report = await compiled(greedy)
    assert report.compiles
    assert [kernel.warps for kernel in report.kernels] == [4]


async def test_what_no_configuration_compiles_is_an_error() -> None:
    report = await compiled(AUTOTUNED.replace("# kernel", "missing()"))
    assert "missing is not defined" in report.reason


async def test_the_program_finds_the_gpu_that_it_is_compiled_for() -> None:
    asked = """assert x.is_cuda and x.device == torch.device("cuda:0") and torch.cuda.is_available()
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(x.device).multi_processor_count == 132
    assert x.data_ptr() % 16 == 0 and x.view(-1)[1:].data_ptr() % 16 == 4
    workspace = torch.empty(4, device="cuda")
    assert workspace.device == x.device and x.cuda().is_contiguous()"""
    assert (await compiled(before(asked))).reason == ""


async def test_a_tensor_of_the_cpu_cannot_be_given_to_a_kernel() -> None:
    report = await compiled(before("x = torch.empty(4, 4)"))
    assert "cpu tensor?" in report.reason


async def test_what_only_contents_tell_is_not_known_here() -> None:
    report = await compiled(before("float(x.sum())"))
    assert report.error
    assert not report.kernels


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (before("raise ValueError('no luck')"), "ValueError: no luck (kernel.py:28)"),
        (before("return"), "no kernel was launched"),
        (RIGHT.replace("(x, weight, y):", "(x, y):"), "is called with 3 arguments"),
        (before("os._exit(0)"), "ended early"),
    ],
)
async def test_a_program_that_does_not_come_to_its_launches_is_told(text: str, reason: str) -> None:
    report = await compiled(text)
    assert not report.compiles
    assert reason in report.reason


async def test_another_architecture_is_bad_input() -> None:
    with pytest.raises(ConfigError, match="sm_90"):
        await compiled(RIGHT, "sm_1")
