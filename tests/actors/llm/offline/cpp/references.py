"""Reference programs of several stages, of the tests' own, at small and odd shapes."""

from __future__ import annotations

from tests.actors.llm.offline.references import reference


def _lines(*statements: str) -> str:
    return "\n        ".join(statements)


_OWN_NORM = """\
class RootNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.scale


def gate(x):
    first, second = x.chunk(2, dim=-1)
    return first * torch.sigmoid(second)


class Model"""

REFERENCES = {
    "linear_in_a_helper": reference(
        "tokens):\n        return self.mix(tokens) + tokens[..., :1]\n\n"
        "    def mix(self, t):\n        return F.silu(self.up(t)) * 0.5",
        "[torch.randn(3, 7, 20)]",
        init="self.up = nn.Linear(20, 33, bias=False)",
    ),
    "product_with_softmax": reference(
        "x):\n        return F.softmax(x @ self.w.t() + self.b, dim=-1)",
        "[torch.randn(21, 19)]",
        init=_lines("self.w = nn.Parameter(torch.randn(37, 19))", "self.b = nn.Parameter(torch.randn(37))"),
    ),
    "masked_rows": reference(
        "s, m):\n        return torch.softmax((s / 0.7).masked_fill(m, float('-inf')), dim=-1)",
        "[torch.randn(6, 45), torch.rand(6, 45) < 0.3]",
    ),
    "no_numbers": reference(
        "x, m):\n        return torch.tanh(x).masked_fill(m, float('nan'))",
        "[torch.randn(6, 45), torch.rand(6, 45) < 0.3]",
    ),
    "batches_of_products": reference(
        "a, b):\n        return torch.bmm(a, b) / math.sqrt(a.size(-1))",
        "[torch.randn(4, 9, 17), torch.randn(4, 17, 11)]",
    ),
    "causal_attention": reference(
        _lines(
            "x):",
            "b, n, _ = x.shape",
            "q, k, v = self.qkv(x).view(b, n, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)",
            "seen = torch.tril(torch.ones(n, n, device=x.device)) == 0",
            "s = (q @ k.transpose(-2, -1)) * 8 ** -0.5",
            "p = s.masked_fill(seen, float('-inf')).softmax(-1)",
            "return self.out((p @ v).transpose(1, 2).reshape(b, n, 32))",
        ),
        "[torch.randn(2, 13, 32)]",
        init=_lines("self.qkv = nn.Linear(32, 96)", "self.out = nn.Linear(32, 32)"),
    ),
    "decoding_with_shared_heads": reference(
        _lines(
            "query, keys, values, lengths):",
            "batch, heads, width = query.shape",
            "grouped = query.view(batch, keys.size(1), -1, width)",
            "dots = torch.einsum('bgrd,bgnd->bgrn', grouped, keys) / width ** 0.5",
            "inside = torch.arange(keys.size(2)) < lengths[:, None, None, None]",
            "weights = torch.softmax(torch.where(inside, dots, torch.finfo(dots.dtype).min), dim=-1)",
            "return torch.einsum('bgrn,bgnd->bgrd', weights, values).reshape(batch, heads, width)",
        ),
        "[torch.randn(3, 6, 24), torch.randn(3, 2, 45, 24), torch.randn(3, 2, 45, 24), torch.randint(1, 46, (3,))]",
    ),
    "decoding_in_bfloat16": reference(
        _lines(
            "q, k, v, at):",
            "k = k[:, :, None].expand(-1, -1, 3, -1, -1).reshape(2, 6, 50, 16)",
            "v = torch.repeat_interleave(v, 3, dim=1)",
            "s = torch.matmul(q.unsqueeze(2), k.transpose(2, 3)).squeeze(2) * 0.25",
            "s = s.masked_fill(~(torch.arange(50)[None, None] <= at.view(-1, 1, 1)), -float('inf'))",
            "return (s.softmax(-1).unsqueeze(-2) @ v).squeeze(-2)",
        ),
        "[torch.randn(2, 6, 16).bfloat16(), torch.randn(2, 2, 50, 16).bfloat16(), "
        "torch.randn(2, 2, 50, 16).bfloat16(), torch.randint(0, 50, (2,))]",
    ),
    "triangle_of_incoming_edges": reference(
        _lines(
            "pair, valid):",
            "n = self.first(pair)",
            "a = self.pa(n) * self.ga(n).sigmoid() * valid.unsqueeze(-1)",
            "b = self.pb(n) * self.gb(n).sigmoid() * valid.unsqueeze(-1)",
            "t = torch.einsum('bkic,bkjc->bijc', a, b)",
            "return self.last(self.second(t)) * torch.sigmoid(self.g(n))",
        ),
        "[torch.randn(1, 11, 11, 24), (torch.rand(1, 11, 11) > 0.2).float()]",
        init=_lines(
            "self.first, self.second = nn.LayerNorm(24), nn.LayerNorm(20)",
            "self.pa = nn.Linear(24, 20)",
            "self.pb = nn.Linear(24, 20)",
            "self.ga = nn.Linear(24, 20)",
            "self.gb = nn.Linear(24, 20)",
            "self.g = nn.Linear(24, 24)",
            "self.last = nn.Linear(20, 24)",
        ),
    ),
    "triangle_with_channels_first": reference(
        _lines(
            "z):",
            "left, right = self.both(z).permute(0, 3, 1, 2).chunk(2, dim=1)",
            "return torch.einsum('bcik,bcjk->bcij', left, right).permute(0, 2, 3, 1) * z.mean(-1, keepdim=True)",
        ),
        "[torch.randn(2, 9, 9, 12)]",
        init="self.both = nn.Linear(12, 28)",
    ),
    "feed_forward": reference(
        "h):\n        return F.layer_norm(h + self.net(h), (18,), self.w, None, 1e-6)",
        "[torch.randn(5, 6, 18)]",
        init=_lines(
            "self.net = nn.Sequential(nn.Linear(18, 50), nn.GELU(), nn.Linear(50, 18))",
            "self.w = nn.Parameter(torch.randn(18))",
        ),
    ),
    "own_modules_and_functions": reference(
        "x):\n        return gate(F.linear(self.norm(x), self.w))",
        "[torch.randn(23, 30)]",
        init=_lines("self.norm = RootNorm(30, eps=1e-4)", "self.w = nn.Parameter(torch.randn(44, 30))"),
    ).replace("class Model", _OWN_NORM, 1),
    "half_precision": reference(
        "x):\n        return torch.relu(torch.addmm(self.b, x, self.w)) ** 2",
        "[torch.randn(14, 33).half()]",
        init=_lines(
            "self.w = nn.Parameter(torch.randn(33, 26).half())",
            "self.b = nn.Parameter(torch.randn(26).half())",
        ),
    ),
    "double_precision": reference(
        "x, y):\n        return torch.einsum('ij,kj->ki', x, y).tanh(), (x[:, None] * y).amax(-1)",
        "[torch.randn(7, 40).double(), torch.randn(9, 40).double()]",
    ),
    "one_row": reference(
        "x):\n        return self.f(x).sigmoid()", "[torch.randn(1, 70)]", init="self.f = nn.Linear(70, 192)"
    ),
    "linear_attention": reference(
        _lines(
            "q, k, v, mask):",
            "k = torch.softmax(k.masked_fill(mask[..., None], -1e30), dim=1)",
            "state = torch.einsum('bnd,bne->bde', k, v)",
            "return torch.einsum('bnd,bde->bne', F.elu(q) + 1, state)",
        ),
        "[torch.randn(2, 15, 6), torch.randn(2, 15, 6), torch.randn(2, 15, 10), torch.rand(2, 15) > 0.7]",
    ),
    "shared_heads_in_one_call": reference(
        "q, k, v):\n"
        "        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).flatten(1, 2)",
        "[torch.randn(2, 4, 9, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)]",
    ),
}  # fmt: skip

PLANS = (
    "",
    "vectorise",
    "fuse threads",
    "threads vectorise tile=4 lanes=2 pack reuse",
    "fuse threads vectorise tile=8 lanes=2 pack skip keep dynamic reuse rows=4",
    "fuse threads vectorise tile=2 lanes=4 skip stream rows=8",
    "fuse vectorise tile=6 lanes=3 skip pack keep wide exact",
)
"""From the plainest to the most involved."""
