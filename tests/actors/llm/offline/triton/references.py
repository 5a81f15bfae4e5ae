"""Reference programs of the tests' own for Triton: long rows and narrow types, at odd shapes."""

from __future__ import annotations

from tests.actors.llm.offline.references import REFERENCES, reference

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
    "two_stages": reference("x):\n        return x.softmax(0) + x.softmax(1)", "[torch.randn(9, 13)]"),
    "rows_of_rows": reference(
        "x, s):\n        s = torch.sqrt(s.abs() + 1.0)\n        return (x * s).sum(-1, keepdim=True) / s + s",
        "[torch.randn(21, 45), torch.randn(21, 1)]",
    ),
}  # fmt: skip
ROW_PLANS = {
    "plain": "",
    "few_rows": "rows=4 warps=8 stream",
    "early": "rows=2 early",
    "persistent": "rows=2 persistent=3 wide exact",
}
