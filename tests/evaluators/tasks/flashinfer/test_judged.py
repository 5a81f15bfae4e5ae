"""Candidates for a definition are judged: numbers by value, outputs in place, -inf where the reference has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluators.tasks import reference_candidate
from evaluators.tasks.flashinfer.packing import candidate_of_json
from evaluators.tasks.flashinfer.reading import read_task
from ksearch_async.evaluation.judging import open_judge
from messages.base import Language
from messages.tasks import Candidate, SourceFile, TaskSpec
from tests.evaluators.tasks.flashinfer import sets

PYTHON = """import math
import torch


def run(q, cache, kv_indptr, kv_indices, sm_scale, output, lse):
    starts = kv_indptr.tolist()
    for row, (begin, end) in enumerate(zip(starts, starts[1:])):
        if begin == end:
            output[row], lse[row] = 0.0, -math.inf
            continue
        keys = cache[kv_indices[begin:end].long()]
        scores = q[row] @ keys.T * sm_scale
        lse[row] = scores.logsumexp(-1) / math.log(2.0)
        output[row] = scores.softmax(-1) @ keys
"""
CPP = """#include <cmath>
#include <cstdint>
#include <vector>

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* q = static_cast<const float*>(inputs[0]);
    const float* cache = static_cast<const float*>(inputs[1]);
    const int32_t* starts = static_cast<const int32_t*>(inputs[2]);
    const int32_t* places = static_cast<const int32_t*>(inputs[3]);
    const double scale = *static_cast<const double*>(inputs[4]);
    float* output = static_cast<float*>(outputs[0]);
    float* lse = static_cast<float*>(outputs[1]);
    for (int64_t head = 0; head < 2 * shapes[0][0]; ++head) {
        const int begin = starts[head / 2], count = starts[head / 2 + 1] - begin;
        double sums[16] = {0}, total = 0, top = -INFINITY;
        std::vector<double> scores(count, 0.0);
        for (int at = 0; at < count; ++at) {
            const float* key = cache + places[begin + at] * 16;
            for (int d = 0; d < 16; ++d) scores[at] += double(q[head * 16 + d]) * key[d] * scale;
            top = std::fmax(top, scores[at]);
        }
        for (int at = 0; at < count; ++at) {
            const float* key = cache + places[begin + at] * 16;
            const double weight = std::exp(scores[at] - top);
            total += weight;
            for (int d = 0; d < 16; ++d) sums[d] += weight * key[d];
        }
        lse[head] = count ? float(std::log2(total) + top / std::log(2.0)) : -INFINITY;
        for (int d = 0; d < 16; ++d) output[head * 16 + d] = count ? float(sums[d] / total) : 0.0f;
    }
    return 0;
}
"""


@pytest.fixture(name="task")
def make_task(tmp_path: Path) -> TaskSpec:
    """Return a definition with two workloads, one of which has rows without a key."""
    return read_task(f"{sets.written(tmp_path)}#{sets.NAME}:one,six")


async def fate_of(task: TaskSpec, candidate: Candidate) -> tuple[str, str]:
    async with open_judge(task, language=candidate.language, library_calls="allow") as judge:
        found = await judge.evaluate(candidate)
    return found.fate, found.reason


def written(language: Language, entry_point: str, name: str, text: str) -> Candidate:
    return Candidate(language=language, entry_point=entry_point, files=(SourceFile(path=name, text=text),))


@pytest.mark.long
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("candidate", "fates"),
    [
        (written("python", "run", "main.py", PYTHON), {"measured", "unstable"}),
        (written("python", "run", "main.py", PYTHON.replace("-math.inf", "0.0")), {"wrong"}),
        (written("cpp", "ksearch_run", "kernel.cpp", CPP), {"measured", "unstable"}),
        (written("cpp", "ksearch_run", "kernel.cpp", CPP.replace("* scale", "* 2")), {"wrong"}),
    ],
    ids=["python", "python, finite where the reference is not", "cpp", "cpp, another scale"],
)
async def test_a_candidate_gets_numbers_and_writes_what_the_reference_returns(
    task: TaskSpec, candidate: Candidate, fates: set[str]
) -> None:
    fate, reason = await fate_of(task, candidate)
    assert fate in fates, reason


def test_the_definitions_reference_in_a_candidates_place_writes_to_its_outputs(task: TaskSpec) -> None:
    candidate = reference_candidate(task)
    reference: dict[str, Any] = {}
    imports, _, rest = candidate.files[0].text.partition("\n")
    assert imports == "from ksearch_reference import Model, get_init_inputs"
    exec(candidate.files[1].text, reference)  # noqa: S102 - the task's own text
    names = {name: reference[name] for name in ("Model", "get_init_inputs")}
    exec(rest, names)  # noqa: S102 - our own text
    indptr, indices = torch.tensor([0, 2, 2]), torch.tensor([1, 0])
    output, lse = torch.empty(2, 2, 16), torch.empty(2, 2)
    names["run"](torch.ones(2, 2, 16), torch.ones(3, 16), indptr, indices, 0.5, output, lse)
    assert output[0].tolist() == [[1.0] * 16] * 2
    assert lse[1].isneginf().all()


QUANTISED = """import torch


def run(x):
    return (x * 0.5).to(torch.float8_e4m3fn)
"""


@pytest.mark.long
@pytest.mark.anyio
@pytest.mark.parametrize(("scale", "fates"), [("0.5", {"measured", "unstable"}), ("0.48", {"wrong"})])
async def test_outputs_of_eight_bits_may_be_rounded_otherwise_and_not_scaled_otherwise(
    tmp_path: Path, scale: str, fates: set[str]
) -> None:
    rows = {"shape": ["rows", "width"]}
    definition = {
        "name": sets.NAME,
        "op_type": "quantisation",
        "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 256}},
        "constraints": [],
        "inputs": {"x": {**rows, "dtype": "float32"}},
        "outputs": {"y": {**rows, "dtype": "float8_e4m3fn"}},
        "reference": QUANTISED,
    }
    folder = sets.written(tmp_path, changed=definition, uuids=())
    task = read_task(f"{folder}#{sets.NAME}:small")
    text = f"import torch\n\n\ndef run(x, y):\n    y.copy_((x * {scale}).to(torch.float8_e4m3fn))\n"
    fate, reason = await fate_of(task, written("python", "run", "main.py", text))
    assert fate in fates, reason


HEADER = """#pragma once
#include <ATen/ATen.h>

void decode(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, double,
            at::Tensor&, at::Tensor&);
"""
KERNEL = """#include "kernel.h"
#include <cmath>

void decode(const at::Tensor& q, const at::Tensor& cache, const at::Tensor& starts, const at::Tensor& places,
            double scale, at::Tensor& output, at::Tensor& lse) {
    ksearch_run_it
}
"""
BINDING = """#include "named_again.h"
#include <torch/csrc/utils/pybind.h>

std::map<std::string, at::Tensor> run(at::Tensor q, at::Tensor cache, at::Tensor starts, at::Tensor places,
                                      double scale) {
    at::Tensor output = at::empty_like(q), lse = at::empty({q.size(0), q.size(1)}, q.options());
    decode(q, cache, starts, places, scale, output, lse);
    return {{"output", output}, {"lse", lse}};
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


@pytest.mark.long
@pytest.mark.anyio
@pytest.mark.timeout(300)  # a compiler reads torch's headers
async def test_a_solution_with_a_torch_binding_runs_what_the_builder_built(task: TaskSpec) -> None:
    body = CPP.partition("const float* q =")[2].rpartition("return 0;")[0]
    arrays = (
        "const void* inputs[] = {q_.data_ptr(), cache_.data_ptr(), starts_.data_ptr(), places_.data_ptr(), &scale_};"
        "void* outputs[] = {output_.data_ptr(), lse_.data_ptr()};"
        "const int64_t first[] = {q_.size(0)}; const int64_t* const shapes[] = {first};"
    )
    renamed = KERNEL
    for name in ("q", "cache", "starts", "places", "scale", "output", "lse"):
        renamed = renamed.replace(f" {name},", f" {name}_,").replace(f" {name})", f" {name}_)")
    document = sets.solution(
        language="cpp", binding="torch", entry_point="main.cpp::run", destination_passing_style=False
    )
    document["sources"] = [
        {"path": "main.cpp", "content": BINDING},
        {"path": "kernel.cpp", "content": renamed.replace("ksearch_run_it", f"{arrays} const float* q ={body}")},
        {"path": "kernel.h", "content": HEADER},
        {"path": "named_again.h", "content": HEADER},
    ]
    candidate = candidate_of_json(json.dumps(document), "given", task)
    fate, reason = await fate_of(task, candidate)
    assert fate in {"measured", "outpaced", "unstable"}, reason
