"""The k largest elements of each row, and where they stand: what routing, beams and sampling begin with.

Where elements are equal, any of them is right; so outputs are checked by what they must be, not against one answer.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"rows": 64, "columns": 4096, "k": 32},
    "gpu": {"rows": 512, "columns": 131072, "k": 64},
    "shapes/one": {"rows": 1, "columns": 32768, "k": 50},
    "shapes/narrow": {"rows": 1024, "columns": 128, "k": 8},
    "shapes/odd": {"rows": 37, "columns": 5001, "k": 1},
}
HIDDEN_WORKLOADS = {"held-out": {"rows": 29, "columns": 3333, "k": 21}}


class Model(nn.Module):
    """values, places = the k largest of x over the last dimension, largest first."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x: (rows, columns) fp32. Returns values, (rows, k) fp32, and places, (rows, k) int64."""
        values, places = torch.topk(x, self.k, dim=-1)
        return values, places


def check_outputs(x: torch.Tensor, outputs: tuple[torch.Tensor, torch.Tensor]) -> str:
    """Say what is wrong with outputs; values are copies, so nothing is rounded."""
    values, places = outputs
    if not bool(((places >= 0) & (places < x.shape[1])).all()):
        return "a place lies outside its row"
    if bool((places.sort(dim=-1).values.diff(dim=-1) == 0).any()):
        return "a place is named twice in its row"
    if not torch.equal(x.gather(1, places), values):
        return "a value is not what stands at its place"
    if not torch.equal(values, torch.topk(x, values.shape[1], dim=-1).values):
        return "the values are not the largest of their row, largest first"
    return ""


def get_inputs(rows: int, columns: int) -> list[torch.Tensor]:
    """Logits."""
    return [2.0 * torch.randn(rows, columns)]


def get_init_inputs(k: int) -> list[int]:
    """How many."""
    return [k]
