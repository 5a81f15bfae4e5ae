"""A set of our own with a definition of sampling, small enough for many calls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TOKENS = 1024
NAME = "top_k_top_p_sampling_from_probs_v1024"

REFERENCE = """import torch


@torch.no_grad()
def run(probs, top_k, top_p):
    samples = torch.empty(probs.shape[0], dtype=torch.int64, device=probs.device)
    for row in range(probs.shape[0]):
        masses, order = probs[row].sort(descending=True)
        masses[int(top_k[row]) :] = 0.0
        masses /= masses.sum()
        masses[masses.cumsum(0) - masses > float(top_p[row])] = 0.0
        samples[row] = order[torch.multinomial(masses, 1)]
    return samples
"""


def definition() -> dict[str, Any]:
    """Return the definition as JSON has it."""
    rows = {"shape": ["batch_size"]}
    return {
        "name": NAME,
        "op_type": "sampling",
        "axes": {"batch_size": {"type": "var"}, "vocab_size": {"type": "const", "value": TOKENS}},
        "inputs": {
            "probs": {"shape": ["batch_size", "vocab_size"], "dtype": "float32"},
            "top_k": {**rows, "dtype": "int32"},
            "top_p": {**rows, "dtype": "float32"},
        },
        "outputs": {"samples": {**rows, "dtype": "int64"}},
        "reference": REFERENCE,
    }


def written(root: Path, **changed: object) -> Path:
    """Write a set with one workload of 32 rows, and return its folder."""
    workload = {"uuid": "rows", "axes": {"batch_size": 32}, "inputs": {}}
    for part, name, text in (
        ("definitions", f"{NAME}.json", json.dumps({**definition(), **changed})),
        ("workloads", f"{NAME}.jsonl", json.dumps({"definition": NAME, "workload": workload}) + "\n"),
    ):
        folder = root / "set" / part / "sampling"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return root / "set"
