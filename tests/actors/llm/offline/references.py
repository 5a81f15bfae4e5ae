"""Reference programs of the tests' own, at small and odd shapes."""

from __future__ import annotations

_HEAD = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
"""


def reference(forward: str, inputs: str, *, init: str = "pass", arguments: str = "", given: str = "[]") -> str:
    """Return a problem file: `forward` is its signature and body, `inputs` what `get_inputs` returns."""
    return (
        f"{_HEAD}"
        f"    def __init__(self{arguments}):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, {forward}\n\n"
        f"def get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return {given}\n"
    )


REFERENCES = {
    "rms_norm_with_gate": reference(
        "x, gate):\n"
        "        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)\n"
        "        return x * scale * self.weight * F.silu(gate)",
        "[torch.randn(37, 131) + 0.1, torch.randn(37, 131)]",
        arguments=", hidden, eps=1e-6",
        init="self.weight = nn.Parameter(torch.randn(hidden)); self.eps = eps".replace("; ", "\n        "),
        given="[131]",
    ),
    "softmax_by_hand": reference(
        "x):\n"
        "        top = torch.max(x, dim=-1, keepdim=True).values\n"
        "        e = torch.exp(x - top)\n"
        "        return e / e.sum(dim=-1, keepdim=True)",
        "[5 * torch.randn(3, 11, 70)]",
    ),
    "layer_norm_by_hand": reference(
        "x):\n"
        "        mu = x.mean(dim=-1, keepdim=True)\n"
        "        var = x.var(dim=-1, keepdim=True, unbiased=False)\n"
        "        return (x - mu) / torch.sqrt(var + 1e-5) * self.w + self.b",
        "[3 + torch.randn(29, 67)]",
        init="self.w = nn.Parameter(torch.randn(67)); self.b = nn.Parameter(torch.randn(67))".replace(
            "; ", "\n        "
        ),
    ),
    "gelu_chain": reference(
        "x, y):\n"
        "        a = F.gelu(x) + F.gelu(y, approximate='tanh')\n"
        "        return torch.tanh(a) * torch.clamp(y, min=-0.5, max=2.0) - 0.5 * a",
        "[2 * torch.randn(16, 90), 2 * torch.randn(16, 90)]",
    ),
    "methods_of_results": reference(
        "x):\n"
        "        y = F.gelu(x * 1.5 + 0.25).clamp(-1, 3) * torch.sigmoid(x)\n"
        "        return torch.relu(y).sum(dim=-1, keepdim=True) + self.act(y).abs()",
        "[2 * torch.randn(16, 90)]",
        init="self.act = nn.SiLU()",
    ),
    "modules": reference(
        "x):\n        return self.act(self.norm(x)) / SCALE",
        "[torch.randn(4, 6, 40)]",
        init="self.norm = nn.LayerNorm(40); self.act = nn.ELU(alpha=0.7)".replace("; ", "\n        "),
    ).replace("class Model", "SCALE = 2.0 ** 0.5\n\nclass Model"),
    "row_results": reference(
        "x):\n        return torch.logsumexp(x, dim=1), x.abs().amax(dim=1, keepdim=True), x.std(dim=1)",
        "[torch.randn(31, 57)]",
    ),
    "elementary_functions": reference(
        "x):\n"
        "        p = F.softplus(x) + torch.log1p(x.abs()) + torch.erf(x) + F.leaky_relu(x, 0.1)\n"
        "        return p * torch.sigmoid(x) + torch.log(x * x + 1e-3) + torch.expm1(-x.abs()) + x ** 3",
        "[3 * torch.randn(1, 3000)]",
    ),
    "normalised_over_two_dimensions": reference(
        "x):\n        return F.layer_norm(x, (6, 10), None, None, 1e-5)",
        "[torch.randn(8, 6, 10)]",
    ),
    "bfloat16": reference(
        "x, s):\n        return torch.softmax(x * s, dim=-1)",
        "[torch.randn(9, 40).to(torch.bfloat16), torch.randn(9, 1).to(torch.bfloat16)]",
    ),
    "rotated_halves": reference(
        "x, c, s):\n        a, b = x.chunk(2, dim=-1)\n        return x * c + torch.cat((-b, a), dim=-1) * s",
        "[torch.randn(3, 5, 24), torch.randn(5, 24), torch.randn(5, 24)]",
    ),
    "float64": reference("x):\n        return F.normalize(x, dim=-1) * torch.exp(x)", "[torch.randn(9, 40).double()]"),
}

PLANS = {
    "plain": "",
    "plain_lanes": "threads vectorise rows=3",
    "everything": "fuse threads vectorise keep stream dynamic reuse rows=2",
}
