"""Triangle multiplication with incoming edges (AlphaFold 3, supplement, algorithm 13), its mask boolean and often full.

The sum runs over the first index of both factors, so that reads of the two are along columns. Workloads without padding
have a mask that is true everywhere: a kernel that leaves the mask out is right on those alone.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"batch": 1, "residues": 48, "pair": 64, "hidden": 32, "is_padded": True},
    "gpu": {"batch": 2, "residues": 512, "pair": 128, "hidden": 128, "is_padded": True},
    "shapes/32": {"batch": 2, "residues": 32, "pair": 64, "hidden": 32, "is_padded": True},
    "shapes/full": {"batch": 1, "residues": 48, "pair": 32, "hidden": 64, "is_padded": False},
    "shapes/odd": {"batch": 1, "residues": 53, "pair": 40, "hidden": 24, "is_padded": True},
}
HIDDEN_WORKLOADS = {"held-out": {"batch": 1, "residues": 37, "pair": 56, "hidden": 48, "is_padded": True}}


class Model(nn.Module):
    """z_ij = gate_ij * W_o norm(sum_k a_ki b_kj); a and b are gated projections of the normed z, masked."""

    def __init__(self, pair: int, hidden: int) -> None:
        super().__init__()
        self.norm_in = nn.LayerNorm(pair)
        self.factors = nn.Linear(pair, 2 * hidden, bias=False)
        self.factor_gates = nn.Linear(pair, 2 * hidden, bias=False)
        self.gate = nn.Linear(pair, pair, bias=False)
        self.norm_out = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, pair, bias=False)

    def forward(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """z: (batch, i, j, pair) fp32; mask: (batch, i, j) bool, true where the pair is valid. Returns z's shape."""
        z = self.norm_in(z)
        factors = torch.sigmoid(self.factor_gates(z)) * self.factors(z)
        a, b = factors.masked_fill(~mask[..., None], 0.0).chunk(2, dim=-1)
        products = torch.einsum("bkic,bkjc->bijc", a, b)
        return torch.sigmoid(self.gate(z)) * self.out(self.norm_out(products))


def get_inputs(batch: int, residues: int, pair: int, is_padded: bool) -> list[torch.Tensor]:
    """A pair representation; where it is padded, the last residues are, and one pair of eight is unresolved."""
    z = torch.randn(batch, residues, residues, pair)
    mask = torch.ones(batch, residues, residues, dtype=torch.bool)
    if is_padded:
        mask = torch.rand(batch, residues, residues) > 0.125
        mask[:, -residues // 6 :, :] = False
        mask[:, :, -residues // 6 :] = False
    return [z, mask]


def get_init_inputs(pair: int, hidden: int) -> list[int]:
    """Channels of the pair representation, hidden channels."""
    return [pair, hidden]
