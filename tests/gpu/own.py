"""Four kernels of our own, each in Triton and in CUDA, and the tasks that they solve in two sizes."""

from __future__ import annotations

from pathlib import Path

from messages.base import Language
from messages.tasks import Candidate, SourceFile, TaskSpec

_FOLDER = Path(__file__).with_name("kernels")
_FILES: dict[Language, str] = {"triton": ".py", "cuda": ".cu"}

_HEAD = """
import torch
from torch import nn
from torch.nn import functional

"""
_SOFTMAX = """
ROWS, COLUMNS = {sizes}


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [3 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""
_MATMUL = """
ROWS, INNER, OUTER = {sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(INNER, OUTER)

    def forward(self, x):
        return 1.25 * functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(ROWS, INNER)]


def get_init_inputs():
    return []
"""
_DECODE = """
BATCH, HEADS, GROUPS, LENGTH, DIM = {sizes}


class Model(nn.Module):
    def forward(self, q, k, v, position):
        k, v = (cache.repeat_interleave(HEADS // GROUPS, dim=1) for cache in (k, v))
        scores = torch.einsum("bhd,bhnd->bhn", q, k) * DIM**-0.5
        later = torch.arange(LENGTH, device=k.device) > position[:, None, None]
        return torch.einsum("bhn,bhnd->bhd", scores.masked_fill(later, float("-inf")).softmax(dim=-1), v)


def get_inputs():
    caches = [torch.randn(BATCH, GROUPS, LENGTH, DIM) for _ in range(2)]
    # Sequences of different lengths, together always as long: how much there is to do does not depend on the draw.
    lengths = LENGTH // 2 + torch.randperm(BATCH) * (LENGTH // 2) // BATCH
    return [torch.randn(BATCH, HEADS, DIM), *caches, lengths]


def get_init_inputs():
    return []
"""
_TRIMUL = """
BATCH, SIZE, PAIR = {sizes}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_in = nn.LayerNorm(PAIR)
        self.left, self.right, self.left_gate, self.right_gate, self.gate = (
            nn.Linear(PAIR, PAIR, bias=False) for _ in range(5)
        )
        self.norm_out = nn.LayerNorm(PAIR)
        self.out = nn.Linear(PAIR, PAIR, bias=False)

    def forward(self, z, mask):
        z, valid = self.norm_in(z), mask[..., None]
        a = valid * torch.sigmoid(self.left_gate(z)) * self.left(z)
        b = valid * torch.sigmoid(self.right_gate(z)) * self.right(z)
        products = torch.einsum("bikc,bjkc->bijc", a, b)
        return torch.sigmoid(self.gate(z)) * self.out(self.norm_out(products))


def get_inputs():
    return [torch.randn(BATCH, SIZE, SIZE, PAIR), (torch.rand(BATCH, SIZE, SIZE) > 0.2).float()]


def get_init_inputs():
    return []
"""
_PROBLEMS: dict[str, tuple[str, str, str]] = {
    "softmax": (_SOFTMAX, "32, 1000", "8192, 8192"),
    "matmul": (_MATMUL, "100, 72, 150", "4096, 2048, 2048"),
    "decode": (_DECODE, "2, 16, 4, 200, 64", "32, 32, 8, 2048, 128"),
    "trimul": (_TRIMUL, "1, 64, 32", "1, 256, 128"),
}
"""Text, the size in which a CPU can look at a GPU's kernel (odd where it may be: tails), the size that is timed."""
NAMES = tuple(_PROBLEMS)
LANGUAGES = tuple(_FILES)


def small_task(name: str) -> TaskSpec:
    """Return the task of a kernel in a size that its numbers can be looked at with on a CPU."""
    text, small, _ = _PROBLEMS[name]
    return TaskSpec(name=f"{name}-small", source="kernelbench", text=_HEAD + text.format(sizes=small))


def gpu_task(name: str) -> TaskSpec:
    """Return the task of a kernel in the size that it is timed with."""
    text, _, size = _PROBLEMS[name]
    return TaskSpec(name=name, source="kernelbench", text=_HEAD + text.format(sizes=size))


def source_of(name: str, language: Language) -> Path:
    """Return where a kernel lies."""
    return _FOLDER / f"{name}{_FILES[language]}"


def candidate_of(name: str, language: Language) -> Candidate:
    """Return a kernel."""
    path = source_of(name, language)
    return Candidate(
        language=language, entry_point="ksearch_run", files=(SourceFile(path=path.name, text=path.read_text()),)
    )
