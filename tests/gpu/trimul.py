"""The competition's TriMul in our task's form, in our own words, and its submissions as modules.

Shapes, distributions and tolerances are those of reference-kernels f83cb92 (problems/bioml/trimul/task.yml). A shape
whose mask is meant to be used has a random one here; their harness reads the text "False" as true and uses ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from messages.tasks import Candidate, SourceFile, TaskRules, TaskSpec, Tolerance, Workload

_KERNEL = re.compile(r"@triton\.jit\s+def (\w+)")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One of the competition's benchmark cases."""

    seqlen: int
    bs: int
    dim: int
    seed: int
    nomask: bool
    distribution: str

    @property
    def line(self) -> str:
        """As their harness reads it from a file of cases."""
        return (
            f"seqlen: {self.seqlen}; bs: {self.bs}; dim: {self.dim}; hiddendim: 128; seed: {self.seed}; "
            f"nomask: {self.nomask}; distribution: {self.distribution}"
        )


SHAPES = (
    Shape(seqlen=256, bs=2, dim=128, seed=9371, nomask=True, distribution="normal"),
    Shape(seqlen=768, bs=1, dim=128, seed=381, nomask=True, distribution="cauchy"),
    Shape(seqlen=256, bs=2, dim=384, seed=2301, nomask=False, distribution="normal"),
    Shape(seqlen=512, bs=1, dim=128, seed=12819, nomask=True, distribution="normal"),
    Shape(seqlen=1024, bs=1, dim=128, seed=381, nomask=True, distribution="cauchy"),
    Shape(seqlen=768, bs=1, dim=384, seed=481, nomask=False, distribution="normal"),
    Shape(seqlen=1024, bs=1, dim=384, seed=23291, nomask=True, distribution="normal"),
)

_PROBLEM = """
import torch
from torch import nn

BATCH, LENGTH, DIM, HIDDEN = {bs}, {seqlen}, {dim}, 128


class Model(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.left_proj = nn.Linear(dim, hidden, bias=False)
        self.right_proj = nn.Linear(dim, hidden, bias=False)
        self.left_gate = nn.Linear(dim, hidden, bias=False)
        self.right_gate = nn.Linear(dim, hidden, bias=False)
        self.out_gate = nn.Linear(dim, hidden, bias=False)
        self.to_out_norm = nn.LayerNorm(hidden)
        self.to_out = nn.Linear(hidden, dim, bias=False)
        for name, parameter in self.named_parameters():
            scale = 1.0 if "norm" in name else (HIDDEN if name != "to_out.weight" else DIM) ** -0.5
            nn.init.normal_(parameter, std=scale)

    def forward(self, x, mask):
        x = self.norm(x)
        valid = mask[..., None]
        left = self.left_proj(x) * valid * torch.sigmoid(self.left_gate(x))
        right = self.right_proj(x) * valid * torch.sigmoid(self.right_gate(x))
        products = torch.einsum("bikd,bjkd->bijd", left, right)
        return self.to_out(self.to_out_norm(products) * torch.sigmoid(self.out_gate(x)))


def get_inputs():
    shape = (BATCH, LENGTH, LENGTH, DIM)
    x = torch.randn(shape) if {normal} else 2.0 * torch.tan(torch.pi * (torch.rand(shape) - 0.5))
    mask = torch.ones(shape[:3]) if {nomask} else torch.randint(0, 2, shape[:3]).float()
    return [x, mask]


def get_init_inputs():
    return [DIM, HIDDEN]
"""

_MODULE = """
import torch
from torch import nn

from submission import custom_kernel

OTHER_ADDRESSES = 128


class ModelNew(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.left_proj = nn.Linear(dim, hidden, bias=False)
        self.right_proj = nn.Linear(dim, hidden, bias=False)
        self.left_gate = nn.Linear(dim, hidden, bias=False)
        self.right_gate = nn.Linear(dim, hidden, bias=False)
        self.out_gate = nn.Linear(dim, hidden, bias=False)
        self.to_out_norm = nn.LayerNorm(hidden)
        self.to_out = nn.Linear(hidden, dim, bias=False)
        self.config = {"dim": dim, "hidden_dim": hidden}
        self.weights = None

    def forward(self, x, mask):
        if self.weights is None:
            self.weights = {name: value.detach() for name, value in self.named_parameters()}
        return custom_kernel((x, mask, self.weights, self.config)).to(x.dtype)


class AsUpstream(ModelNew):
    # Their harness keeps one tuple for all calls, calls with gradients enabled, and takes an output as it lies: after
    # the first call, which is looked at, it is wrapped so that nobody makes it dense.
    def forward(self, x, mask):
        is_first = self.weights is None
        if is_first:
            self.weights = {name: value.detach() for name, value in self.named_parameters()}
            self.given = (x, mask, self.weights, self.config)
        with torch.enable_grad():
            out = custom_kernel(self.given)
        return out.detach().to(x.dtype) if is_first else [[out]]


class WeightsMoved(ModelNew):
    # As upstream, with the same weights at other addresses in every call: what is kept by address or object is no use.
    def forward(self, x, mask):
        is_first = self.weights is None
        if is_first:
            self.weights = [
                {name: value.detach().clone() for name, value in self.named_parameters()}
                for _ in range(OTHER_ADDRESSES)
            ]
            self.given = [(x, mask, weights, self.config) for weights in self.weights]
            self.number = 0
        self.number = (self.number + 1) % OTHER_ADDRESSES
        with torch.enable_grad():
            out = custom_kernel(self.given[self.number])
        return out.detach().to(x.dtype) if is_first else [[out]]
"""
AS_UPSTREAM, WEIGHTS_MOVED = "AsUpstream", "WeightsMoved"
"""Other classes of the same file: to see what a manner of calling costs."""


def task_of(shape: Shape, *, masks: bool = True) -> TaskSpec:
    """Return a shape as a task.

    Args:
        shape: the competition's.
        masks: whether masks are random where they are meant to be used.
    """
    text = _PROBLEM.format(
        bs=shape.bs,
        seqlen=shape.seqlen,
        dim=shape.dim,
        normal=shape.distribution == "normal",
        nomask=shape.nomask or not masks,
    )
    return TaskSpec(
        name=f"trimul-{shape.seqlen}x{shape.dim}",
        source="kernelbench",
        text=text,
        tolerance=Tolerance(profile="gpumode:2e-2,2e-2"),
        rules=TaskRules(library_calls="allow"),
    )


def task_of_all(shapes: Sequence[Shape]) -> TaskSpec:
    """Return shapes as the workloads of one task, which one judge serves."""
    inputs, arguments = "bs, seqlen, dim, normal, nomask", "dim"
    text = (
        _PROBLEM.replace("BATCH, LENGTH, DIM, HIDDEN = {bs}, {seqlen}, {dim}, 128", "HIDDEN = 128")
        .replace("else DIM) ** -0.5", "else dim) ** -0.5")
        .replace("def get_inputs():", f"def get_inputs({inputs}):")
        .replace("(BATCH, LENGTH, LENGTH, DIM)", "(bs, seqlen, seqlen, dim)")
        .replace("{normal}", "normal")
        .replace("{nomask}", "nomask")
        .replace("def get_init_inputs():", f"def get_init_inputs({arguments}):")
        .replace("[DIM, HIDDEN]", "[dim, HIDDEN]")
    )
    workloads = tuple(
        Workload(
            name=f"{shape.seqlen}x{shape.bs}x{shape.dim}",
            dimensions={
                "bs": shape.bs,
                "seqlen": shape.seqlen,
                "dim": shape.dim,
                "normal": shape.distribution == "normal",
                "nomask": shape.nomask,
            },
        )
        for shape in shapes
    )
    return TaskSpec(
        name="trimul",
        source="kernelbench",
        text=text,
        tolerance=Tolerance(profile="gpumode:2e-2,2e-2"),
        rules=TaskRules(library_calls="allow"),
        workloads=workloads,
    )


def submission(path: Path, harness: Path, *, suffix: str = "") -> Candidate:
    """Return a submission as a module.

    Args:
        path: the submission.
        harness: the competition's folder, whose helpers it may import.
        suffix: behind the names of its kernels, which makes it another candidate with others, new to all caches.
    """
    helpers = [SourceFile(path=name, text=(harness / name).read_text()) for name in ("task.py", "utils.py")]
    own = SourceFile(path="submission.py", text=_with_kernels_named(path.read_text(), suffix))
    files = (SourceFile(path="main.py", text=_MODULE), own, *helpers)
    return Candidate(language="python", entry_point="ModelNew", files=files)


def _with_kernels_named(text: str, suffix: str) -> str:
    names = "|".join(dict.fromkeys(_KERNEL.findall(text)))
    return re.sub(rf"\b({names})\b", rf"\1{suffix}", text) if names else f"{text}\n# {suffix}\n"
