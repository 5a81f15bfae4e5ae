"""Small problems of our own in GPUMode's format, written to a folder."""

from __future__ import annotations

from pathlib import Path

TASK_PY = "import torch\n\ninput_t = tuple[torch.Tensor, ...]\noutput_t = torch.Tensor\n"
UTILS_PY = """import torch


def match_reference(data, output, reference, rtol=1e-05, atol=1e-08):
    return torch.allclose(output, reference(data), rtol=rtol, atol=atol), ""


def make_match_reference(reference, **kwargs):
    return lambda data, output: match_reference(data, output, reference, **kwargs)
"""

MASKED_YML = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "task.py", "source": "task.py"}
  - {"name": "utils.py", "source": "../utils.py"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "../eval.py"}
lang: "py"
description: |
  Scale each row by a weight, where the mask says so.
config: {main: "eval.py"}
tests:
  - {"rows": 3, "width": 16, "seed": 4242, "nomask": True}
  - {"rows": 5, "width": 33, "seed": 11, "nomask": False}
benchmarks:
  - {"rows": 64, "width": 32, "seed": 9371, "nomask": True}
  - {"rows": 48, "width": 40, "seed": 2301, "nomask": False}
ranking_by: "geom"
"""
MASKED = """import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    x, mask, weights, config = data
    return x * weights["scale"] * mask * config["factor"]


def generate_input(rows: int, width: int, seed: int, nomask: bool) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    x = torch.randn(rows, width, device="cuda", generator=gen)
    if nomask:
        mask = torch.ones(rows, width, device="cuda")
    else:
        mask = torch.randint(0, 2, (rows, width), device=x.device, generator=gen)
    weights = {"scale": torch.randn(width, device="cuda")}
    return x, mask, weights, {"factor": 2.0, "name": "masked"}


check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=1e-3)
"""
MASKED_RIGHT = """from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    x, mask, weights, config = data
    return (x * mask) * (weights["scale"] * config["factor"])
"""
MASKED_WRONG = MASKED_RIGHT.replace("(x * mask)", "x")

ROOM_YML = (
    MASKED_YML.partition("tests:")[0]
    + """
tests:
  - {"size": 127, "seed": 4242}
  - {"size": 128, "seed": 5236}
benchmarks:
  - {"size": 1024, "seed": 31232}
"""
)
ROOM = """import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    a, b, output = data
    output[...] = (a.double() + b).float()
    return output


def generate_input(size: int, seed: int) -> input_t:
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    a = torch.empty(size, 2, device="cuda")
    a.uniform_(0, 1, generator=gen)
    b = torch.randn(size, 2, device="cuda", generator=gen).contiguous()
    c = torch.empty_like(a, dtype=torch.float32).contiguous()
    return a, b, c


check_implementation = make_match_reference(ref_kernel)
"""
ROOM_RIGHT = """import torch


@torch.compile(mode="reduce-overhead")
def add(a, b):
    return a + b


def custom_kernel(data):
    a, b, output = data
    output[...] = add(a, b)
    return output
"""
ROOM_WRONG = "def custom_kernel(data):\n    _, _, output = data\n    return output\n"

PASSES_YML = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "eval.py", "source": "eval.py"}
tests: [{"width": 8}]
benchmarks: [{"width": 8}, {"width": 16}]
ranking_by: geom
"""
PASSES = """import torch

DEVICE = "cuda"
ATOL = 1e-3
RTOL = 1e-2


def reference_forward(logits, targets):
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")


def reference_backward(logits, targets, grad_output):
    grad = torch.softmax(logits.float(), dim=-1)
    grad[torch.arange(len(grad)), targets] -= 1.0
    return (grad * grad_output.unsqueeze(1)).to(logits.dtype)


def generate_inputs(batch, width, seed=42):
    torch.manual_seed(seed)
    logits = torch.randn(batch, width, dtype=torch.bfloat16, device=DEVICE)
    return logits, torch.randint(0, width, (batch,), device=DEVICE), torch.randn(batch, device=DEVICE)
"""
PASSES_EVAL = """from reference import generate_inputs

ROWS = 24
WANTED = ("loss_forward", "loss_backward")


def check(width):
    return generate_inputs(ROWS, width)
"""
PASSES_RIGHT = """import torch


def loss_forward(logits, targets):
    return torch.logsumexp(logits.float(), -1) - logits.float().gather(1, targets[:, None]).squeeze(1)


def loss_backward(logits, targets, grad_output):
    grad = torch.softmax(logits.float(), -1) - torch.nn.functional.one_hot(targets, logits.shape[1])
    return (grad * grad_output[:, None]).to(logits.dtype)
"""


def write_problem(root: Path, name: str, document: str, reference: str, harness: str = "") -> Path:
    """Write a problem to `root/set/NAME` and return that folder."""
    folder = root / "set" / name
    folder.mkdir(parents=True)
    (folder / "task.yml").write_text(document)
    (folder / "reference.py").write_text(reference)
    (folder / "task.py").write_text(TASK_PY)
    (folder / "eval.py").write_text(harness)
    (folder.parent / "utils.py").write_text(UTILS_PY)
    (folder.parent / "eval.py").write_text(harness)
    return folder


def masked(root: Path) -> Path:
    """Write a problem with a mask that is a boolean of its cases."""
    return write_problem(root, "masked", MASKED_YML, MASKED)


def with_room(root: Path) -> Path:
    """Write a problem whose arguments hold room for its output."""
    return write_problem(root, "room_py", ROOM_YML, ROOM)


def with_passes(root: Path) -> Path:
    """Write a problem with a forward and a backward pass."""
    return write_problem(root, "passes_py", PASSES_YML, PASSES, PASSES_EVAL)
