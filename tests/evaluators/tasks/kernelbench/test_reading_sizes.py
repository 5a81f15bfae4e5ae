"""Sizes for a CPU: only the numbers of module-level assignments change, and what is derived from them follows."""

from __future__ import annotations

import ast

import pytest

from evaluators.tasks.kernelbench.reading import (
    MOST_ELEMENTS,
    STEPS,
    Step,
    capped,
    count_elements,
    halved,
    sized_for_cpu,
)

PROBLEM = '''import torch
import torch.nn as nn


class Model(nn.Module):
    """Groups of 4096 features; the text says 8192, and stays."""

    def __init__(self, features, bias_shape, num_groups):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, features)
        self.bias = nn.Parameter(torch.zeros(bias_shape))
        self.limit = 1024

    def forward(self, x):
        return self.norm(x) + self.bias


batch_size = 32768  # 32768 rows
features = 4096 * 2
num_groups = 512
bias_shape = (features,)
eps = 1e-5


def get_inputs():
    return [torch.rand(batch_size, features)]


def get_init_inputs():
    return [features, bias_shape, num_groups]
'''


def test_numbers_of_assignments_are_halved_and_all_else_stays() -> None:
    sized = capped(PROBLEM, Step(64, 64, 16))
    expected = PROBLEM.replace("batch_size = 32768 ", "batch_size = 16 ").replace("4096 * 2", "64 * 2")
    assert sized.text == expected.replace("num_groups = 512", "num_groups = 16")
    changed = [(change.name, change.before, change.after) for change in sized.changes]
    assert changed == [
        ("batch_size", "32768", "16"),
        ("features", "4096 * 2", "64 * 2"),
        ("num_groups", "512", "16"),
    ]


def test_what_is_derived_from_a_capped_number_follows_it() -> None:
    names: dict[str, object] = {}
    tree = ast.parse(capped(PROBLEM, Step(64, 64, 16)).text)
    tree.body = [node for node in tree.body if isinstance(node, ast.Assign)]
    exec(compile(tree, "sized", "exec"), names)  # noqa: S102 - a text of this file
    assert names["bias_shape"] == (128,)


@pytest.mark.parametrize(
    ("number", "cap", "becomes"), [(768, 64, 48), (480, 16, 15), (65535, 256, 255), (64, 64, 64), (3, 16, 3)]
)
def test_halving_keeps_the_factors_that_a_program_relies_on(number: int, cap: int, becomes: int) -> None:
    assert halved(number, cap) == becomes


@pytest.mark.parametrize(
    ("assignment", "becomes"),
    [
        ("height = width = 2048", "height = width = 64"),
        ("depth, height, width = 16, 512, 512", "depth, height, width = 16, 64, 64"),
        ("layer_sizes = [1024] * 3", "layer_sizes = [32] * 3"),
        ("kernel_size = (5, 9)", "kernel_size = (5, 9)"),
        ("out_channels = 480", "out_channels = 60"),
        ("out_channels = 24; num_groups = 8", "out_channels = 24; num_groups = 8"),
        ("out_channels = 24; num_classes = 10", "out_channels = 24; num_classes = 10"),
        ("out_channels = 40; num_classes = 10", "out_channels = 20; num_classes = 10"),
        ("batch_size = 4096; shape = (4096,)", "batch_size = 32; shape = (32,)"),
        ("channels = 100", "channels = 100"),
        ("image_size = 224", "image_size = 224"),
        ("batch_size = 10", "batch_size = 5"),
        ("scale: int = 4096", "scale: int = 32"),
        ("divisor = 100.0", "divisor = 100.0"),
        ("flag = True", "flag = True"),
        ("to_2tuple = _ntuple(2048)", "to_2tuple = _ntuple(2048)"),
        ('mode = "bilinear"', 'mode = "bilinear"'),
        ("größe = 4096; features = 4096", "größe = 32; features = 32"),
    ],
)
def test_how_far_a_number_is_capped_follows_from_its_name(assignment: str, becomes: str) -> None:
    assert capped(assignment + "\n", Step(32, 64, 8)).text == becomes + "\n"


def test_elements_are_counted_without_running_anything() -> None:
    text = "n = 4\nshape = (n, 2)\ndef get_inputs():\n    return [torch.rand(n, *shape), torch.randint(0, 2, (n,))]\n"
    assert count_elements(text) == 4 * 4 * 2 + 4
    assert count_elements("def get_inputs():\n    return [torch.rand(unknown())]\n") is None
    assert count_elements("n = 1\n") is None


def test_the_largest_sizes_within_the_budget_are_taken() -> None:
    sized = sized_for_cpu(PROBLEM)
    assert sized.elements is not None
    assert sized.elements <= MOST_ELEMENTS
    assert sized.text == capped(PROBLEM, STEPS[0]).text


def test_a_problem_that_is_small_already_stays_as_it_is() -> None:
    small = capped(PROBLEM, Step(64, 64, 16)).text
    assert sized_for_cpu(small).text == small
    assert sized_for_cpu(small).changes == ()


def test_where_no_step_does_the_smallest_is_taken() -> None:
    text = "batch_size = 64\ndef get_inputs():\n    return [torch.rand(batch_size, 1024, 1024)]\n"
    assert sized_for_cpu(text).text == capped(text, STEPS[-1]).text


IMAGES = """
pool = torch.nn.{pool}
batch_size, channels, height, width = 128, 3, 224, 224


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]
"""


def test_of_images_there_are_few_and_small_ones() -> None:
    text = IMAGES.format(pool="AdaptiveAvgPool2d(7)")
    assert "= 4, 3, 56, 56\n" in sized_for_cpu(text).text


def test_an_image_whose_network_ends_in_a_fixed_window_keeps_its_extent() -> None:
    text = IMAGES.format(pool="AvgPool2d(7)")
    assert "= 2, 3, 224, 224\n" in sized_for_cpu(text).text


@pytest.mark.parametrize(("groups", "left"), [("", 12), ("num_groups = 8\n", 24)])
def test_channels_go_on_dividing_by_four_and_by_eight_where_there_are_groups(groups: str, left: int) -> None:
    sized = capped(f"{groups}channels = 96\n", Step(16, 64, 2))
    assert sized.text == f"{groups}channels = {left}\n"
