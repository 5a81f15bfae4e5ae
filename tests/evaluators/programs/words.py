"""Programs and evaluator files, sound and not."""

from __future__ import annotations

from pathlib import Path

from evaluators.programs.task import load_program, probe_interpreter
from messages.commands import EvaluateCandidate
from messages.tasks import Candidate, SourceFile, TaskSpec

PROGRAM = """\
# EVOLVE-BLOCK-START
def solve():
    # body
    return 0.5
# EVOLVE-BLOCK-END
"""

EVALUATOR = '''\
"""Scores what solve() returns."""
import importlib.util


def evaluate(program_path):
    """Larger numbers win."""
    spec = importlib.util.spec_from_file_location("candidate", program_path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # before
    return {"combined_score": module.solve(), "stage": "full"}
'''


def task_in(folder: Path, evaluator: str = EVALUATOR, *, timeout_s: float = 20.0, memory_gib: float = 4.0) -> TaskSpec:
    """Write both files and return the task."""
    (folder / "initial.py").write_text(PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    paths = (str(folder / "initial.py"), str(folder / "evaluator.py"))
    return load_program(*paths, timeout_s=timeout_s, memory_gib=memory_gib)


def program(body: str) -> Candidate:
    """Return a candidate whose `solve` begins with these statements."""
    text = PROGRAM.replace("# body", body.replace("\n", "\n    "))
    return Candidate(language="python", entry_point="", files=(SourceFile(path="program.py", text=text),))


def job(task: TaskSpec, candidate: Candidate) -> EvaluateCandidate:
    return EvaluateCandidate(
        job_id="j1", run_id="r1", task=task, candidate=candidate, artifact_id="", target=probe_interpreter()
    )
