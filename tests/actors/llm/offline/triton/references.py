"""Reference programs of the tests' own for Triton: long rows, narrow types, products of tensors; at odd shapes."""

from __future__ import annotations

from tests.actors.llm.offline.references import REFERENCES, reference


def _lines(*statements: str) -> str:
    return "\n        ".join(statements)


ROWS = {
    **REFERENCES,
    "float16": reference("x):\n        return F.layer_norm(x, (70,)) * 0.5", "[torch.randn(13, 70).half()]"),
    "long_rows": reference("x, w):\n        return torch.softmax(x * w, dim=-1)",
                           "[torch.randn(3, 17001), torch.randn(17001)]"),
    "one_long_row": reference("x, w):\n        return torch.tanh(x) * (w + 1.0)",
                              "[torch.randn(5, 9000), torch.randn(9000)]"),
    "powers": reference("x):\n        return 2.0 ** x + (x * x + 0.1) ** 0.3 + x ** 9", "[torch.randn(7, 33)]"),
    "choices": reference(
        "x, y):\n        return torch.where((x > 0.5) & (y <= 0.25), x, torch.where(x != y, y, -x)).sum(dim=(1, 2))",
        "[torch.randn(7, 5, 6), torch.randn(7, 5, 6)]",
    ),
    "single_result": reference("x):\n        return (x * x).mean()", "[torch.randn(37, 130)]"),
    "rows_of_rows": reference(
        "x, s):\n        s = torch.sqrt(s.abs() + 1.0)\n        return (x * s).sum(-1, keepdim=True) / s + s",
        "[torch.randn(21, 45), torch.randn(21, 1)]",
    ),
}  # fmt: skip
PRODUCTS = {
    "linear_gelu": reference(
        "x):\n        return 1.25 * F.gelu(self.linear(x))", "[torch.randn(37, 70)]",
        init="self.linear = nn.Linear(70, 50)",
    ),
    "linear_bfloat16": reference(
        "x, w, b):\n        return torch.relu(F.linear(x, w, b))",
        "[torch.randn(20, 48).bfloat16(), torch.randn(33, 48).bfloat16(), torch.randn(33).bfloat16()]",
    ),
    "product_float64": reference(
        "x, y):\n        return x @ y", "[torch.randn(19, 30).double(), torch.randn(30, 23).double()]"
    ),
    "sums_of_batched_products": reference(
        "a, b):\n        return torch.bmm(a, b).relu().sum(dim=-1)", "[torch.randn(3, 40, 37), torch.randn(3, 37, 45)]"
    ),
    "matrix_and_vector": reference("a, x):\n        return a @ x", "[torch.randn(37, 130), torch.randn(130)]"),
    "self_attention": reference(
        "x):\n"
        "        scores = self.q(x) @ self.k(x).transpose(-1, -2)\n"
        "        return torch.softmax(scores, dim=-1) @ self.v(x)",
        "[torch.randn(2, 21, 37)]",
        init=_lines("self.q = nn.Linear(37, 16)", "self.k = nn.Linear(37, 16)", "self.v = nn.Linear(37, 16)"),
    ),
    "norm_of_linear": reference(
        "x):\n        return F.layer_norm(self.linear(x), (50,))", "[torch.randn(37, 70)]",
        init="self.linear = nn.Linear(70, 50, bias=False)",
    ),
    "batched_both_transposed": reference(
        'a, b):\n        return torch.einsum("bikc,bjkc->bijc", a, b)',
        "[torch.randn(2, 17, 9, 6), torch.randn(2, 13, 9, 6)]",
    ),
    "attention": reference(
        "q, k, v):\n"
        "        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(24)\n"
        "        return torch.matmul(torch.softmax(scores, dim=-1), v)",
        "[torch.randn(2, 3, 37, 24), torch.randn(2, 3, 45, 24), torch.randn(2, 3, 45, 24)]",
    ),
    "attention_with_bias_and_gate": reference(
        "q, k, v, bias, g):\n"
        '        scores = torch.einsum("bihd,bjhd->bhij", q, k) * 0.2 + bias\n'
        '        result = torch.einsum("bhij,bjhd->bihd", torch.softmax(scores, dim=-1), v)\n'
        "        return torch.sigmoid(g) * result",
        "[torch.randn(2, 19, 3, 20), torch.randn(2, 70, 3, 20), torch.randn(2, 70, 3, 20), torch.randn(3, 19, 70), "
        "torch.randn(2, 19, 3, 20)]",
    ),
    "causal_attention": reference(
        "q, k, v):\n"
        "        scores = torch.matmul(q, k.transpose(-1, -2)) * 0.2\n"
        "        future = torch.arange(150)[None, :] > torch.arange(150)[:, None]\n"
        '        return torch.matmul(torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1), v)',
        "[torch.randn(3, 150, 20), torch.randn(3, 150, 20), torch.randn(3, 150, 20)]",
    ),
    "grouped_decoding": reference(
        "q, k, v, position):\n"
        "        k = k.repeat_interleave(3, dim=1)\n"
        "        v = v.repeat_interleave(3, dim=1)\n"
        '        scores = torch.einsum("bhd,bhnd->bhn", q, k) * 24 ** -0.5\n'
        "        future = torch.arange(k.shape[2], device=k.device) > position[:, None, None]\n"
        '        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)\n'
        '        return torch.einsum("bhn,bhnd->bhd", weights, v)',
        "[torch.randn(2, 6, 24), torch.randn(2, 2, 75, 24), torch.randn(2, 2, 75, 24), torch.tensor([64, 17])]",
    ),
    "triangle": reference(
        "z, mask):\n"
        "        z = self.norm(z)\n"
        "        a = mask[..., None] * torch.sigmoid(self.left_gate(z)) * self.left(z)\n"
        "        b = mask[..., None] * self.right(z)\n"
        '        products = torch.einsum("bikc,bjkc->bijc", a, b)\n'
        "        return torch.sigmoid(self.gate(z)) * self.out(F.layer_norm(products, (12,)))",
        "[torch.randn(1, 11, 11, 20), (torch.rand(1, 11, 11) > 0.3).float()]",
        init=_lines(
            "self.norm = nn.LayerNorm(20)",
            "self.left = nn.Linear(20, 12, bias=False)",
            "self.right = nn.Linear(20, 12, bias=False)",
            "self.left_gate = nn.Linear(20, 12, bias=False)",
            "self.gate = nn.Linear(20, 20, bias=False)",
            "self.out = nn.Linear(12, 20, bias=False)",
        ),
    ),
}  # fmt: skip
ROW_PLANS = {
    "plain": "",
    "fused": "fuse warps=8",
    "blocks": "fuse rows=4 columns=32 stages=2 stream",
    "persistent": "fuse rows=2 persistent=3 wide exact",
}
PRODUCT_PLANS = {
    "plain": "",
    "fused": "fuse",
    "small_tiles": "fuse together block_m=16 block_n=16 block_k=16 group=2 tensor_cores",
    "wide": "wide exact fuse together",
}
