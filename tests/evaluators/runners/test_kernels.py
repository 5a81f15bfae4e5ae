"""What was compiled at the build is found by the process that calls the candidate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.languages import support_of
from evaluators.runners.kernels import KERNELS, seed_cache
from messages.commands import BuildCandidate
from messages.events import Built
from tests.evaluators.languages.triton.test_ahead import TENSORS
from tests.evaluators.languages.triton.test_gpu import H200
from tests.evaluators.languages.triton.words import triton

pytestmark = pytest.mark.anyio

_AGAIN = """
import json, sys
from evaluators.languages.triton.recording import record
from triton import knobs
hits = []
knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
report = record(json.loads(sys.argv[1]))
print(json.dumps([hits, report["error"]]))
"""


@pytest.fixture
async def artifact(tmp_path: Path, anyio_backend: object) -> Path:
    builder = LocalBuilder(tmp_path / "artifacts")
    target = support_of("triton", "cuda").probe_builder(H200)
    job = BuildCandidate(job_id="j1", run_id="r1", candidate=triton(), target=target, tensors=TENSORS)
    outcome = (await builder.build(job)).outcome
    builder.close()
    assert isinstance(outcome, Built)
    return artifact_folder(tmp_path / "artifacts", outcome.artifact_id)


def compiled_again(artifact: Path, cache: Path) -> list[bool]:
    """Compile the artifact's program in a new process. Returns of each kernel whether it was in the cache."""
    job = {
        "folder": str(artifact),
        "program": str(artifact / "kernel.py"),
        "entry_point": "ksearch_run",
        "tensors": [(spec.shape, spec.dtype) for spec in TENSORS],
        "capability": 90,
        "shared_bytes": 232_448,
    }
    done = subprocess.run(
        [sys.executable, "-c", _AGAIN, json.dumps(job)],
        env={**os.environ, "TRITON_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    hits, error = json.loads(done.stdout)
    assert not error
    return [bool(hit) for hit in hits]


def test_what_the_build_compiled_is_not_compiled_again(artifact: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    seed_cache(str(artifact / KERNELS), str(cache))
    assert compiled_again(artifact, cache) == [True]


@pytest.mark.long
def test_without_it_everything_is_compiled(artifact: Path, tmp_path: Path) -> None:
    assert compiled_again(artifact, tmp_path / "cache") == [False]


def test_damaged_kernels_are_left_out(tmp_path: Path) -> None:
    built, cache = tmp_path / "built", tmp_path / "cache"
    (built / "hash").mkdir(parents=True)
    cache.mkdir()
    (built / "hash" / "__grp__kernel.json").write_text("[]", encoding="utf-8")
    (built / "stray").write_text("", encoding="utf-8")
    seed_cache(str(built), str(cache))
    assert not (cache / "hash").exists()


def test_an_artifact_without_kernels_is_no_error(tmp_path: Path) -> None:
    seed_cache(str(tmp_path / "nothing"), str(tmp_path))
    assert not [*tmp_path.iterdir()]
