"""Causal multi-head latent attention over whole prompts: keys and values are made of a latent, then attended to.

Keys of a head are an up-projection of the token's latent beside a rotated part that all heads share, values another
up-projection (DeepSeek-V2, arXiv 2405.04434, section 2.1). Prompts of different lengths lie one after the other; a
token sees those of its own prompt up to itself.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"prompts": 3, "tokens": 96, "heads": 4, "latent": 128, "head": 32, "rotary": 16},
    "gpu": {"prompts": 4, "tokens": 3072, "heads": 16, "latent": 512, "head": 128, "rotary": 64},
    "shapes/one": {"prompts": 1, "tokens": 64, "heads": 4, "latent": 128, "head": 32, "rotary": 16},
    "shapes/many": {"prompts": 13, "tokens": 128, "heads": 2, "latent": 64, "head": 64, "rotary": 32},
    "shapes/odd": {"prompts": 4, "tokens": 101, "heads": 3, "latent": 96, "head": 48, "rotary": 16},
}
HIDDEN_WORKLOADS = {
    "held-out": {"prompts": 5, "tokens": 83, "heads": 5, "latent": 160, "head": 40, "rotary": 24},
}


class Model(nn.Module):
    """out = softmax(q [W_k c, k_rotary]^T / sqrt(head + rotary)) W_v c, later tokens and other prompts left out."""

    def __init__(self, heads: int, latent: int, head: int) -> None:
        super().__init__()
        self.key_up = nn.Parameter((latent**-0.5 * torch.randn(heads, head, latent)).bfloat16())
        self.value_up = nn.Parameter((latent**-0.5 * torch.randn(heads, head, latent)).bfloat16())

    def forward(
        self, q: torch.Tensor, latents: torch.Tensor, rotary_keys: torch.Tensor, starts: torch.Tensor
    ) -> torch.Tensor:
        """Attend with every token; sums are taken in fp32.

        q: (tokens, heads, head + rotary) bf16; latents: (tokens, latent) bf16; rotary_keys: (tokens, rotary) bf16;
        starts: (prompts + 1,) int64, where each prompt begins, and the number of tokens at the end. Returns (tokens,
        heads, head) bf16.
        """
        wide = torch.promote_types(q.dtype, torch.float32)
        tokens, heads, size = q.shape
        c = latents.to(wide)
        k = torch.einsum("nc,hdc->nhd", c, self.key_up.to(wide))
        v = torch.einsum("nc,hdc->nhd", c, self.value_up.to(wide))
        k = torch.cat((k, rotary_keys.to(wide)[:, None].expand(-1, heads, -1)), dim=-1)
        scores = torch.einsum("mhd,nhd->hmn", q.to(wide), k) * size**-0.5
        place = torch.arange(tokens, device=q.device)
        prompt = torch.searchsorted(starts, place, right=True)
        is_seen = (prompt[:, None] == prompt) & (place[:, None] >= place)
        weights = scores.masked_fill(~is_seen, float("-inf")).softmax(dim=-1)
        return torch.einsum("hmn,nhd->mhd", weights, v).to(q.dtype)


def get_inputs(prompts: int, tokens: int, heads: int, latent: int, head: int, rotary: int) -> list[torch.Tensor]:
    """Prompts cut at random places, none empty."""
    q = torch.randn(tokens, heads, head + rotary).bfloat16()
    latents = torch.randn(tokens, latent).bfloat16()
    rotary_keys = torch.randn(tokens, rotary).bfloat16()
    cuts = 1 + torch.randperm(tokens - 1)[: prompts - 1].sort().values
    starts = torch.cat((torch.zeros(1).long(), cuts, torch.full((1,), tokens)))
    return [q, latents, rotary_keys, starts]


def get_init_inputs(heads: int, latent: int, head: int) -> list[int]:
    """Heads, size of the latent, size of a head's key without its rotated part."""
    return [heads, latent, head]
