"""Small sets of our own in FlashInfer-Bench's format, written to a folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "gather_decode_h2_d16"

REFERENCE = """import math
import torch


@torch.no_grad()
def run(q, cache, kv_indptr, kv_indices, sm_scale):
    output = torch.zeros_like(q)
    lse = torch.full(q.shape[:2], -float("inf"), dtype=torch.float32, device=q.device)
    for row in range(q.shape[0]):
        places = kv_indices[int(kv_indptr[row]) : int(kv_indptr[row + 1])].long()
        if len(places) == 0:
            continue
        keys = cache[places]
        scores = torch.einsum("hd,td->ht", q[row], keys) * sm_scale
        lse[row] = torch.logsumexp(scores, dim=-1) / math.log(2.0)
        output[row] = scores.softmax(dim=-1) @ keys
    return output, lse
"""
"""Attention over rows of a cache that a page table names, with a log-sum-exp of -inf where there are none."""

LENGTHS = {
    "one": (3, 9, 7),
    "two": (1, 5, 5),
    "three": (4, 20, 13),
    "four": (2, 8, 3),
    "five": (5, 32, 32),
    "six": (4, 6, 2),
}
"""Batch size, pages and indices by workload."""


def definition() -> dict[str, Any]:
    """Return the definition as JSON has it."""
    return {
        "name": NAME,
        "op_type": "gqa_paged",
        "description": "Attention of one query over rows of a cache.",
        "axes": {
            "batch_size": {"type": "var"},
            "heads": {"type": "const", "value": 2},
            "head_dim": {"type": "const", "value": 16},
            "num_pages": {"type": "var", "description": "Rows of the cache."},
            "len_indptr": {"type": "var"},
            "num_kv_indices": {"type": "var"},
        },
        "constraints": ["len_indptr == batch_size + 1", "num_kv_indices == kv_indptr[-1].item()"],
        "inputs": {
            "q": {"shape": ["batch_size", "heads", "head_dim"], "dtype": "float32"},
            "cache": {"shape": ["num_pages", "head_dim"], "dtype": "float32"},
            "kv_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
            "kv_indices": {"shape": ["num_kv_indices"], "dtype": "int32"},
            "sm_scale": {"shape": None, "dtype": "float32", "description": "Of the scores."},
        },
        "outputs": {
            "output": {"shape": ["batch_size", "heads", "head_dim"], "dtype": "float32"},
            "lse": {"shape": ["batch_size", "heads"], "dtype": "float32"},
        },
        "reference": REFERENCE,
        "a field of a later version": 1,
    }


def workload(uuid: str) -> dict[str, Any]:
    """Return a line of the workloads, whose integers were recorded."""
    batch, pages, indices = LENGTHS[uuid]
    recorded = {"type": "safetensors", "path": f"./blob/{uuid}.safetensors"}
    return {
        "definition": NAME,
        "solution": None,
        "workload": {
            "uuid": uuid,
            "axes": {
                "batch_size": batch,
                "num_pages": pages,
                "len_indptr": batch + 1,
                "num_kv_indices": indices,
            },
            "inputs": {
                "q": {"type": "random"},
                "cache": {"type": "random"},
                "kv_indptr": {**recorded, "tensor_key": "kv_indptr"},
                "kv_indices": {**recorded, "tensor_key": "kv_indices"},
                "sm_scale": {"type": "scalar", "value": 1},
            },
        },
        "evaluation": None,
    }


def written(root: Path, *, changed: dict[str, Any] | None = None, uuids: tuple[str, ...] = tuple(LENGTHS)) -> Path:
    """Write a set, without the recorded tensors, and return its folder."""
    folder = root / "set"
    for part in ("definitions", "workloads"):
        (folder / part / "gqa_paged").mkdir(parents=True, exist_ok=True)
    text = json.dumps({**definition(), **(changed or {})})
    (folder / "definitions" / "gqa_paged" / f"{NAME}.json").write_text(text)
    lines = "".join(json.dumps(workload(uuid)) + "\n" for uuid in uuids)
    (folder / "workloads" / "gqa_paged" / f"{NAME}.jsonl").write_text(lines)
    return folder


def solution(**spec: object) -> dict[str, Any]:
    """Return a solution in Python that writes to its outputs; `spec` changes how it is built and called."""
    return {
        "name": "copying",
        "definition": NAME,
        "author": "tests",
        "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run", **spec},
        "sources": [
            {"path": "helper.py", "content": "x = 1\n"},
            {"path": "main.py", "content": "def run(*given):\n    pass\n"},
        ],
    }
