"""One step of decoding with grouped heads over a paged cache: keys and values lie in pages that a table names.

The pages of a sequence are anywhere in the pool (Kwon et al. 2023, arXiv 2309.06180), the last one is partly filled,
and sequences differ in length. The logarithm of the softmax's denominator is returned too, as it takes to merge parts
of a sequence that were attended to apart.
"""

import torch
from torch import nn

WORKLOADS = {
    "cpu": {"batch": 4, "heads": 16, "groups": 4, "dim": 64, "page": 16, "pages": 16},
    "gpu": {"batch": 64, "heads": 32, "groups": 8, "dim": 128, "page": 16, "pages": 256},
    "shapes/page1": {"batch": 2, "heads": 8, "groups": 2, "dim": 64, "page": 1, "pages": 128},
    "shapes/page64": {"batch": 3, "heads": 8, "groups": 1, "dim": 128, "page": 64, "pages": 3},
    "shapes/short": {"batch": 16, "heads": 8, "groups": 8, "dim": 64, "page": 16, "pages": 2},
}
HIDDEN_WORKLOADS = {"held-out": {"batch": 5, "heads": 20, "groups": 4, "dim": 96, "page": 8, "pages": 11}}


class Model(nn.Module):
    """out = softmax(q k^T / sqrt(dim)) v over the tokens that a sequence has, for one query per head."""

    def forward(
        self,
        q: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        page_table: torch.Tensor,
        lengths: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attend with the last token of each sequence; sums are taken in fp32.

        q: (batch, heads, dim) bf16; keys, values: (pool, page, groups, dim) bf16; page_table: (batch, pages) int32, the
        pages of a sequence in their order, of which those behind its end mean nothing; lengths: (batch,) int32, tokens
        in each sequence, 1 or more. Returns out, (batch, heads, dim) bf16, and the natural logarithm of the sum of
        exponentials, (batch, heads) fp32.
        """
        wide = torch.promote_types(q.dtype, torch.float32)
        batch, heads, dim = q.shape
        groups = keys.shape[2]
        table = page_table.long()
        k = keys[table].flatten(1, 2).to(wide)
        v = values[table].flatten(1, 2).to(wide)
        grouped = q.to(wide).view(batch, groups, heads // groups, dim)
        scores = torch.einsum("bgrd,bngd->bgrn", grouped, k) * dim**-0.5
        behind = torch.arange(k.shape[1], device=q.device) >= lengths[:, None]
        scores = scores.masked_fill(behind[:, None, None], float("-inf"))
        out = torch.einsum("bgrn,bngd->bgrd", scores.softmax(dim=-1), v)
        return out.reshape(batch, heads, dim).to(q.dtype), scores.logsumexp(dim=-1).view(batch, heads)


def get_inputs(batch: int, heads: int, groups: int, dim: int, page: int, pages: int) -> list[torch.Tensor]:
    """A pool with spare pages, handed out in random order; lengths anywhere up to what a table's row can hold."""
    pool = batch * pages + 7
    q = torch.randn(batch, heads, dim).bfloat16()
    keys = torch.randn(pool, page, groups, dim).bfloat16()
    values = torch.randn(pool, page, groups, dim).bfloat16()
    page_table = torch.randperm(pool)[: batch * pages].view(batch, pages).int()
    lengths = torch.randint(1, pages * page + 1, (batch,)).int()
    return [q, keys, values, page_table, lengths]


def get_init_inputs() -> list[int]:
    """Nothing."""
    return []
