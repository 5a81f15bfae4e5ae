"""A mixture of experts in fp8 with block scales: routing in groups, two grouped products with SwiGLU between them.

Routing is DeepSeek-V3's (arXiv 2412.19437, section 2.1.2): a sigmoid of the logits plus a bias decides who is chosen,
first the groups by the sum of their two best experts, then the experts in those groups; the sigmoid without the bias
says what each counts. Scales are for 1 x 128 elements of activations and 128 x 128 of weights (section 3.3.2).
"""

import torch
from torch import nn
from torch.nn import functional

WORKLOADS = {
    "cpu": {"tokens": 24, "hidden": 256, "inner": 128, "experts": 8, "groups": 4, "chosen": 2},
    "gpu": {"tokens": 1024, "hidden": 2048, "inner": 1024, "experts": 64, "groups": 8, "chosen": 8},
    "shapes/one": {"tokens": 1, "hidden": 256, "inner": 128, "experts": 16, "groups": 4, "chosen": 3},
    "shapes/few": {"tokens": 7, "hidden": 128, "inner": 256, "experts": 8, "groups": 2, "chosen": 2},
    "shapes/many": {"tokens": 65, "hidden": 128, "inner": 128, "experts": 12, "groups": 4, "chosen": 4},
}
HIDDEN_WORKLOADS = {
    "held-out": {"tokens": 19, "hidden": 384, "inner": 128, "experts": 20, "groups": 4, "chosen": 5},
}
AS_DRAWN = ["logits", "bias", "x", "gate_up", "down"]
"""fp8 has no room for other values; and of logits between two experts, rounding would decide."""

BLOCK = 128
SCALING = 2.5
"""What the chosen experts' weights sum to."""
_MARGIN = 1e-4


class Model(nn.Module):
    """y = sum over the chosen experts e of weight_e * down_e (silu(gate_e x) * up_e x)."""

    def __init__(self, groups: int, chosen: int) -> None:
        super().__init__()
        self.groups = groups
        self.chosen = chosen

    def forward(
        self,
        logits: torch.Tensor,
        bias: torch.Tensor,
        x: torch.Tensor,
        x_scale: torch.Tensor,
        gate_up: torch.Tensor,
        gate_up_scale: torch.Tensor,
        down: torch.Tensor,
        down_scale: torch.Tensor,
    ) -> torch.Tensor:
        """Route each token to `chosen` experts, which lie in half of the groups, and add up what they make of it.

        logits: (tokens, experts) fp32; bias: (experts,) fp32; x: (tokens, hidden) e4m3, and x_scale: (tokens, hidden /
        128) fp32; gate_up: (experts, 2 * inner, hidden) e4m3, gates first, and gate_up_scale: (experts, 2 * inner /
        128, hidden / 128) fp32; down: (experts, hidden, inner) e4m3, and down_scale: (experts, hidden / 128, inner /
        128) fp32. Values are those of the codes times their block's scale; sums are taken in fp32. Returns (tokens,
        hidden) bf16.
        """
        experts, weights = self.route(logits, bias)
        tokens = x.to(x_scale.dtype) * x_scale.repeat_interleave(BLOCK, dim=1)
        y = torch.zeros_like(tokens)
        for expert in range(logits.shape[1]):
            row, place = (experts == expert).nonzero(as_tuple=True)
            gates, ups = (tokens[row] @ _values(gate_up[expert], gate_up_scale[expert]).T).chunk(2, dim=-1)
            made = (functional.silu(gates) * ups) @ _values(down[expert], down_scale[expert]).T
            y = y.index_add(0, row, made * weights[row, place, None])
        return y if y.dtype == torch.float64 else y.bfloat16()

    def route(self, logits: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the chosen experts of each token, (tokens, chosen) int64, and what they count."""
        scores = logits.sigmoid()
        biased = (scores + bias).view(len(scores), self.groups, -1)
        of_groups = biased.topk(2, dim=-1).values.sum(dim=-1)
        kept = torch.zeros_like(of_groups).scatter(1, of_groups.topk(self.groups // 2, dim=-1).indices, 1.0) > 0
        experts = biased.masked_fill(~kept[..., None], float("-inf")).flatten(1).topk(self.chosen, dim=-1).indices
        weights = scores.gather(1, experts)
        return experts, SCALING * weights / weights.sum(dim=-1, keepdim=True)


def _values(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return what fp8 weights stand for; scale has one element for a block of 128 x 128."""
    return codes.to(scale.dtype) * scale.repeat_interleave(BLOCK, dim=0).repeat_interleave(BLOCK, dim=1)


def get_inputs(tokens: int, hidden: int, inner: int, experts: int, groups: int, chosen: int) -> list[torch.Tensor]:
    """Logits that leave no doubt whom they choose, codes that use fp8's range, scales that bring them to unit size."""
    bias = 0.1 * torch.randn(experts)
    logits = torch.randn(tokens, experts)
    while (is_close := _margins(logits, bias, groups, chosen) < _MARGIN).any():
        logits = torch.where(is_close[:, None], torch.randn(tokens, experts), logits)
    x, x_scale = _codes(tokens, hidden), _scales(1.0, tokens, hidden // BLOCK)
    gate_up = _codes(experts, 2 * inner, hidden)
    gate_up_scale = _scales(hidden**-0.5, experts, 2 * inner // BLOCK, hidden // BLOCK)
    down = _codes(experts, hidden, inner)
    down_scale = _scales(inner**-0.5, experts, hidden // BLOCK, inner // BLOCK)
    return [logits, bias, x, x_scale, gate_up, gate_up_scale, down, down_scale]


def get_init_inputs(groups: int, chosen: int) -> list[int]:
    """Groups of experts, of which half are kept; experts that each token is sent to."""
    return [groups, chosen]


def _codes(*shape: int) -> torch.Tensor:
    return (64.0 * torch.randn(shape)).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def _scales(size: float, *shape: int) -> torch.Tensor:
    """Return scales by which codes have about a size: other ones for each block."""
    return size / 64.0 * (0.5 + torch.rand(shape))


def _margins(logits: torch.Tensor, bias: torch.Tensor, groups: int, chosen: int) -> torch.Tensor:
    """Return per token by how much its routing is decided: between groups, and between experts."""
    biased = (logits.double().sigmoid() + bias.double()).view(len(logits), groups, -1)
    of_groups = biased.topk(2, dim=-1).values.sum(dim=-1)
    ranked = of_groups.sort(dim=-1, descending=True)
    between_groups = ranked.values[:, groups // 2 - 1] - ranked.values[:, groups // 2]
    kept = biased.gather(1, ranked.indices[:, : groups // 2, None].expand(-1, -1, biased.shape[2]))
    best = kept.flatten(1).topk(chosen + 1, dim=-1).values
    return torch.minimum(between_groups, best[:, -2] - best[:, -1])
