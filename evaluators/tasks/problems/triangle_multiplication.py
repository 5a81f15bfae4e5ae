"""Triangle multiplication with outgoing edges (AlphaFold 3, supplement, algorithm 12), with a mask of valid pairs."""

import torch
from torch import nn

SIZE = "cpu"
BATCH, RESIDUES, PAIR, HIDDEN = {"cpu": (1, 64, 64, 64), "gpu": (1, 512, 128, 128)}[SIZE]


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


def get_inputs() -> list[torch.Tensor]:
    """A pair representation in which some residues are padding and some pairs are unresolved."""
    z = torch.randn(BATCH, RESIDUES, RESIDUES, PAIR)
    mask = (torch.rand(BATCH, RESIDUES, RESIDUES) > 0.2).float()
    mask[:, -RESIDUES // 8 :, :] = 0.0
    mask[:, :, -RESIDUES // 8 :] = 0.0
    return [z, mask]


def get_init_inputs() -> list[int]:
    """Channels of the pair representation, hidden channels."""
    return [PAIR, HIDDEN]
