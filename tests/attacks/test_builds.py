"""Building may execute what a candidate wrote: Triton programs are run once, on tensors without contents, to see which
kernels they launch. What they can reach from there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evaluators.build.builder import LocalBuilder, artifact_folder
from evaluators.languages import support_of
from evaluators.local import LocalEvaluator
from messages.base import EvaluatorError
from messages.events import Built
from messages.tasks import Candidate, SourceFile, Target, TensorSpec
from messages.verdicts import DidNotBuild, Rejected
from tests.attacks.cases import CANDIDATES, Places, fill_in
from tests.attacks.places import leftovers
from tests.evaluators.words import SMALL_TASK, build_job, evaluate_job

pytestmark = pytest.mark.anyio

H200 = Target(arch="sm_90", march="", toolchain="", device="NVIDIA H200")
TENSORS = tuple(
    TensorSpec(name=name, role=role, shape=shape, dtype="float32")  # type: ignore[arg-type]
    for name, role, shape in (("x", "input", (64, 256)), ("weight", "parameter", (256,)), ("y", "output", (64, 256)))
)


@pytest.fixture(scope="module")
def gpu_builder(places: Places) -> Iterator[LocalBuilder]:
    builder = LocalBuilder(Path(places["STORE"]))
    yield builder
    builder.close()


async def test_a_program_that_is_recorded_for_a_gpu_reaches_nothing_of_the_users(
    places: Places, gpu_builder: LocalBuilder
) -> None:
    honest = (CANDIDATES / "honest.triton.py").read_text(encoding="utf-8")
    text = (CANDIDATES / "escapes_of_a_build.py").read_text(encoding="utf-8")
    program = f"{honest}\n\ndef ksearch_run(x, weight, y):\n    honest(x, weight, y)\n\n\n{fill_in(text, places)}"
    candidate = Candidate(
        language="triton", entry_point="ksearch_run", files=(SourceFile(path="kernel.py", text=program),)
    )
    target = support_of("triton", "cuda").probe_builder(H200)
    outcome = (await gpu_builder.build(replace(build_job(candidate, target), tensors=TENSORS))).outcome
    left = leftovers(places)
    assert isinstance(outcome, DidNotBuild), outcome
    assert "open: none" in outcome.reason
    assert left == []


PLANTED = {
    "a link to a secret as its log": "os.remove('build.log')\nos.symlink('@SECRET@', 'build.log')\nos._exit(3)",
    "a link to a user's file as its description": "os.symlink('@SECRET@', 'meta.json')\nraise ValueError",
    "a folder as its description": "os.mkdir('meta.json')\nraise ValueError",
    "a link among its compiled kernels": "os.mkdir('kernels')\nos.symlink('@SECRET@', 'kernels/a')\nraise ValueError",
    "a pipe": "os.mkfifo('pipe')\nraise ValueError",
    "a thousand folders": "for _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\nraise ValueError",
    "another program": "open('kernel.py', 'w').write('import ctypes')\nraise RuntimeError('cuda')",
}
"""What a program may leave in its build folder when it is recorded, by what it hopes for."""


LAUNCHES_NOTHING = """
import os
import triton


@triton.jit
def kernel(x):
    pass


def ksearch_run(x, weight, y):
    pass
"""


def left_in(places: Places) -> tuple[str, list[Path]]:
    """Return what the user's file holds, and build folders that were left behind."""
    return Path(places["SECRET"]).read_text(), list(Path(places["STORE"]).glob(".building-*"))


@pytest.mark.parametrize("planted", PLANTED)
async def test_what_a_program_leaves_where_it_is_built_leads_nowhere(
    planted: str, places: Places, gpu_builder: LocalBuilder
) -> None:
    program = f"{LAUNCHES_NOTHING}\n{fill_in(PLANTED[planted], places)}"
    candidate = Candidate(
        language="triton", entry_point="ksearch_run", files=(SourceFile(path="kernel.py", text=program),)
    )
    before = left_in(places)
    job = replace(build_job(candidate, support_of("triton", "cuda").probe_builder(H200)), tensors=TENSORS)
    outcome = (await gpu_builder.build(job)).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    assert "while it is built, it" in outcome.reason
    assert places["NONCE"] not in str(outcome), "a verdict quotes what only the user may read"
    assert left_in(places) == before


STRAYS = """
import os
import torch.utils.cpp_extension
from torch import nn

os.makedirs("inline/0a/deeper")
for name in ("stray.so", "inline/stray.so", "inline/0a/deeper/stray.so", "inline/0a/found.so"):
    with open(name, "wb") as file:
        file.write(b"no library")


class ModelNew(nn.Module):
    pass
"""


async def test_a_library_that_a_module_leaves_where_nobody_would_look_is_gone(
    places: Places, gpu_builder: LocalBuilder, evaluator: LocalEvaluator
) -> None:
    candidate = Candidate(language="python", entry_point="ModelNew", files=(SourceFile(path="kernel.py", text=STRAYS),))
    target = support_of("python").probe_target("cpu")
    outcome = (await gpu_builder.build(build_job(candidate, target))).outcome
    assert isinstance(outcome, Built), outcome
    folder = artifact_folder(Path(places["STORE"]), outcome.artifact_id)
    left = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert left == {"kernel.py", "build.log", "meta.json", "inline/0a/found.so"}
    report = await evaluator.evaluate(evaluate_job(candidate, outcome.artifact_id, target, SMALL_TASK))
    assert isinstance(report.verdict, Rejected), report.verdict
    assert "cannot be looked into" in report.verdict.reason


NAMES = ("a\ud800.h", "a\nb.h", "\x1b[2J.h", "meta.json/a.h", "build.log", "main.cpp/a.h", "x" * 300 + ".h")


@pytest.mark.parametrize("name", NAMES)
async def test_a_file_name_that_no_disk_takes_is_the_candidates_fault(name: str, gpu_builder: LocalBuilder) -> None:
    files = (SourceFile(path="main.cpp", text="int x;"), SourceFile(path=name, text=""))
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=files)
    outcome = (await gpu_builder.build(build_job(candidate, support_of("cpp").probe_target("cpu")))).outcome
    assert isinstance(outcome, DidNotBuild), outcome
    assert "cannot be used" in outcome.reason


FORGED = {
    "a file name in a line directive": '#line 1 "x\\ncc1plus: No space left on device\\ny"\n#error no\n',
    "an assertion": 'static_assert(false, "x\\ncc1plus: No space left on device\\ny");\n',
    "the assembler": 'asm(".print \\"as: No space left on device\\"\\n.error \\"x\\"");\n',
}
"""Sources that have the words printed by which compilers say that the host has stopped them, by where they stand."""


@pytest.mark.parametrize("where", FORGED)
async def test_a_compiler_that_the_host_stops_is_believed_once(where: str, gpu_builder: LocalBuilder) -> None:
    files = (SourceFile(path="main.cpp", text=FORGED[where]),)
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=files)
    job = build_job(candidate, support_of("cpp").probe_target("cpu"))
    with pytest.raises(EvaluatorError, match="stopped from outside"):
        await gpu_builder.build(job)
    outcome = (await gpu_builder.build(job)).outcome
    assert isinstance(outcome, DidNotBuild)
    assert "the candidate's doing" in outcome.reason


async def test_a_compilers_message_holds_nothing_that_a_terminal_acts_upon(gpu_builder: LocalBuilder) -> None:
    text = "#error \x1b]0;title\x07\x1b[2J\x9b2J\u202e\n"
    candidate = Candidate(language="cpp", entry_point="ksearch_run", files=(SourceFile(path="main.cpp", text=text),))
    outcome = (await gpu_builder.build(build_job(candidate, support_of("cpp").probe_target("cpu")))).outcome
    assert isinstance(outcome, DidNotBuild)
    assert all(char.isprintable() or char in "\n\t" for char in outcome.reason + outcome.log), outcome
