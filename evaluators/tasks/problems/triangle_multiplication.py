"""Triangle multiplication with outgoing edges (AlphaFold 3, supplement, algorithm 12), with a mask of valid pairs."""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"batch": 1, "residues": 64, "pair": 64, "hidden": 64},
    "gpu": {"batch": 1, "residues": 512, "pair": 128, "hidden": 128},
    "shapes/32": {"batch": 1, "residues": 32, "pair": 64, "hidden": 32},
    "shapes/48": {"batch": 2, "residues": 48, "pair": 32, "hidden": 64},
    "shapes/64": {"batch": 1, "residues": 64, "pair": 64, "hidden": 64},
    "shapes/odd": {"batch": 1, "residues": 75, "pair": 48, "hidden": 40},
}
HIDDEN_WORKLOADS = {"held-out": {"batch": 1, "residues": 57, "pair": 56, "hidden": 48}}


class Model(nn.Module):
    """z_ij = gate_ij * W_o norm(sum_k a_ik b_jk); a and b are gated projections of the normed z, masked."""

    def __init__(self, pair: int, hidden: int) -> None:
        super().__init__()
        self.norm_in = nn.LayerNorm(pair)
        self.left = nn.Linear(pair, hidden, bias=False)
        self.right = nn.Linear(pair, hidden, bias=False)
        self.left_gate = nn.Linear(pair, hidden, bias=False)
        self.right_gate = nn.Linear(pair, hidden, bias=False)
        self.gate = nn.Linear(pair, pair, bias=False)
        self.norm_out = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, pair, bias=False)

    def forward(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """z: (batch, i, j, pair) fp32; mask: (batch, i, j) fp32, 1 where the pair is valid. Returns z's shape, fp32."""
        z = self.norm_in(z)
        valid = mask[..., None]
        a = valid * torch.sigmoid(self.left_gate(z)) * self.left(z)
        b = valid * torch.sigmoid(self.right_gate(z)) * self.right(z)
        products = torch.einsum("bikc,bjkc->bijc", a, b)
        return torch.sigmoid(self.gate(z)) * self.out(self.norm_out(products))


def get_inputs(batch: int, residues: int, pair: int) -> list[torch.Tensor]:
    """A pair representation in which some residues are padding and some pairs are unresolved."""
    z = torch.randn(batch, residues, residues, pair)
    mask = (torch.rand(batch, residues, residues) > 0.2).float()
    mask[:, -residues // 8 :, :] = 0.0
    mask[:, :, -residues // 8 :] = 0.0
    return [z, mask]


def get_init_inputs(pair: int, hidden: int) -> list[int]:
    """Channels of the pair representation, hidden channels."""
    return [pair, hidden]
