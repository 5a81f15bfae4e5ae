"""Candidates that sample are judged by what they draw over many calls, not by the reference's own draws."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluators.tasks.flashinfer.reading import read_task
from ksearch_async.evaluation.judging import open_judge
from messages.base import ConfigError
from messages.tasks import Candidate, SourceFile
from tests.evaluators.tasks.flashinfer import sampling_sets as sets

RIGHT = """#include <cstdint>
#include <vector>
#include <algorithm>
#include <numeric>

static uint64_t calls = 0;

static double uniform(uint64_t call, uint64_t row) {
    uint64_t x = call * 0x9E3779B97F4A7C15ull + row * 0xD1B54A32D192ED03ull + 1;
    for (int round = 0; round < 3; ++round) {
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
        x ^= x >> 31;
    }
    return double(x >> 11) / 9007199254740992.0;
}

extern "C" int ksearch_run(const void* const* inputs, void* const* outputs, const int64_t* const* shapes) {
    const float* probs = static_cast<const float*>(inputs[0]);
    const int32_t* top_k = static_cast<const int32_t*>(inputs[1]);
    const float* top_p = static_cast<const float*>(inputs[2]);
    int64_t* samples = static_cast<int64_t*>(outputs[0]);
    const int64_t rows = shapes[0][0], tokens = shapes[0][1];
    ++calls;
    for (int64_t row = 0; row < rows; ++row) {
        const float* p = probs + row * tokens;
        std::vector<int64_t> order(tokens);
        std::iota(order.begin(), order.end(), 0);
        std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return p[a] > p[b]; });
        const int64_t k = std::min<int64_t>(top_k[row], tokens);
        double all = 0, kept = 0;
        for (int64_t at = 0; at < k; ++at) all += p[order[at]];
        int64_t end = 0;
        while (end < k && kept <= top_p[row] * all) kept += p[order[end++]];
        double left = uniform(calls, row) * kept;
        int64_t at = 0;
        while (at + 1 < end && (left -= p[order[at]]) >= 0) ++at;
        samples[row] = order[at];
    }
    return 0;
}
"""
FIXED = RIGHT.replace("uniform(calls, row)", "uniform(1, row)")
"""The same random numbers in every call."""
RIGHT_WHEN_ASKED_TWICE = RIGHT.replace(
    "++calls;", "static float last = -1; const bool is_new = probs[0] != last; last = probs[0]; ++calls;"
).replace("samples[row] = order[at]", "samples[row] = order[is_new ? 0 : at]")
"""The likeliest token on inputs that it did not see in the call before, as all of timed calls are."""


async def fate_of(folder: Path, text: str) -> tuple[str, str, tuple[str, ...]]:
    task = read_task(f"{folder}#{sets.NAME}:all")
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="kernel.cpp", text=text),))
    async with open_judge(task, language="cpp") as judge:
        found = await judge.evaluate(candidate)
    return found.fate, found.reason, getattr(found.verdict, "notes", ())


@pytest.mark.long
@pytest.mark.anyio
async def test_a_sampler_with_random_numbers_of_its_own_is_measured_and_told_how_well_it_is_known(
    tmp_path: Path,
) -> None:
    fate, reason, notes = await fate_of(sets.written(tmp_path), RIGHT)
    assert fate in {"measured", "unstable", "outpaced"}, reason
    if fate == "measured":
        assert any(note.startswith("random outputs: 20") for note in notes), notes


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "said"), [(FIXED, "two calls beside each other"), (RIGHT_WHEN_ASKED_TWICE, "by probability")]
)
async def test_a_sampler_that_ignores_chance_is_wrong_in_checked_and_in_timed_calls(
    tmp_path: Path, text: str, said: str
) -> None:
    assert text != RIGHT
    fate, reason, _ = await fate_of(sets.written(tmp_path), text)
    assert fate == "wrong", reason
    assert "not drawn as the reference's" in reason
    assert said in reason


def test_a_definition_that_samples_by_something_else_is_refused(tmp_path: Path) -> None:
    inputs = {**sets.definition()["inputs"], "min_p": {"shape": ["batch_size"], "dtype": "float32"}}
    with pytest.raises(ConfigError, match="in a way that is not checked here"):
        read_task(f"{sets.written(tmp_path, inputs=inputs)}#{sets.NAME}:all")
