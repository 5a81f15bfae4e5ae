"""One step of decoding with multi-head latent attention over a paged cache, the up-projections absorbed.

Every head reads the same latent of a token (DeepSeek-V2, arXiv 2405.04434, section 2.1.2: with the keys' up-projection
absorbed into the query and the values' into the output, the latent takes the place of both), and the same rotated key
beside it. The logarithm of the softmax's denominator is returned too.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"batch": 2, "heads": 16, "latent": 512, "rotary": 64, "page": 16, "pages": 8},
    "gpu": {"batch": 64, "heads": 16, "latent": 512, "rotary": 64, "page": 64, "pages": 64},
    "shapes/page1": {"batch": 2, "heads": 16, "latent": 512, "rotary": 64, "page": 1, "pages": 96},
    "shapes/page64": {"batch": 3, "heads": 16, "latent": 512, "rotary": 64, "page": 64, "pages": 2},
    "shapes/many": {"batch": 16, "heads": 16, "latent": 512, "rotary": 64, "page": 16, "pages": 1},
}
HIDDEN_WORKLOADS = {
    "held-out": {"batch": 3, "heads": 16, "latent": 512, "rotary": 64, "page": 8, "pages": 9},
}

HEAD = 128 + 64
"""Size of a head's key before absorption, its rotated part included: what scores are scaled by."""


class Model(nn.Module):
    """out = softmax((q c^T + q_rotary k_rotary^T) / sqrt(192)) c over a sequence's tokens, for one query per head."""

    def forward(
        self,
        q: torch.Tensor,
        q_rotary: torch.Tensor,
        latents: torch.Tensor,
        rotary_keys: torch.Tensor,
        page_table: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend with the last token of each sequence; sums are taken in fp32.

        q: (batch, heads, latent) bf16; q_rotary: (batch, heads, rotary) bf16; latents: (pool, page, latent) bf16;
        rotary_keys: (pool, page, rotary) bf16; page_table: (batch, pages) int32, the pages of a sequence in their
        order, of which those behind its end mean nothing; lengths: (batch,) int32, 1 or more. Returns out, (batch,
        heads, latent) bf16, and the natural logarithm of the sum of exponentials, (batch, heads) fp32.
        """
        wide = torch.promote_types(q.dtype, torch.float32)
        table = page_table.long()
        c = latents[table].flatten(1, 2).to(wide)
        k = rotary_keys[table].flatten(1, 2).to(wide)
        scores = torch.einsum("bhc,bnc->bhn", q.to(wide), c) + torch.einsum("bhr,bnr->bhn", q_rotary.to(wide), k)
        behind = torch.arange(c.shape[1], device=q.device) >= lengths[:, None]
        scores = (scores * HEAD**-0.5).masked_fill(behind[:, None], float("-inf"))
        out = torch.einsum("bhn,bnc->bhc", scores.softmax(dim=-1), c)
        return out.to(q.dtype), scores.logsumexp(dim=-1)


def get_inputs(batch: int, heads: int, latent: int, rotary: int, page: int, pages: int) -> list[torch.Tensor]:
    """A pool with spare pages, handed out in random order; queries so large that some tokens count more than others."""
    pool = batch * pages + 5
    q = 0.7 * torch.randn(batch, heads, latent)
    q_rotary = 0.7 * torch.randn(batch, heads, rotary)
    latents = torch.randn(pool, page, latent)
    rotary_keys = 2.0 * torch.randn(pool, page, rotary)
    page_table = torch.randperm(pool)[: batch * pages].view(batch, pages).int()
    lengths = torch.randint(1, pages * page + 1, (batch,)).int()
    return [
        q.bfloat16(),
        q_rotary.bfloat16(),
        latents.bfloat16(),
        rotary_keys.bfloat16(),
        page_table,
        lengths,
    ]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
