"""What a coder's model is told. Pure text; the order of parts is from what changes least to what changes most.

System rules, task, action, base, latest attempt, history, complaint, request: endpoints that cache prefixes then read
rules and task once in a run, and action and base once in a branch. The action is in every prompt: an attempt that
debugs or improves still serves its hypothesis.
"""

from __future__ import annotations

from actors.coder.evidence import evidence_of
from actors.coder.parse import MAIN_PATHS, render_files
from actors.llm.base import Request
from messages.base import Language
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief, Candidate
from messages.verdicts import Measured, Scored, outcome_line

HISTORY_SHOWN = 12
"""Latest attempts of the branch that are listed; older ones are counted."""

_CRAFT: dict[Language, str] = {
    "cpp": """\
- Write C++17 for one CPU host. OpenMP is available (`#pragma omp`); the number of threads is set from outside.
- Compiled with -O3, -fopenmp and the -march of the machine that runs it, without -ffast-math: reductions and calls of
  libm vectorise only if you write them so that they may.
- Use only the standard library and the compiler's intrinsics. No BLAS, no torch, no inline build steps.""",
    "triton": """\
- Write Triton kernels (`@triton.jit`) and the Python function that launches them, in one file.
- Import torch, triton, triton.language and math, nothing else. torch is there for shapes, views and `torch.empty`
  workspaces on the outputs' device; no operator of it may compute anything.
- Blocks have sizes that are powers of two and known when a kernel is compiled: mask what lies outside the tensors.""",
    "cuda": "- Write CUDA C++17 with raw kernels. No cuBLAS, cuDNN or torch operators for the work itself.",
    "python": "- Write Python for the interpreter that runs the evaluator, with the modules that are there.",
}

_PROGRAM_RULES = f"""\
You improve programs. You are given a task (an initial program, what its evaluator says of itself), one action to try,
and the best code so far. Carry the action out and return a complete program.

Rules
{_CRAFT["python"]}
- The evaluator's score is all that counts: the larger the better. A program that raises, hangs or ends its process has
  none.
- Earn the score: detect no evaluator, and touch no files, network or other processes unless the task is about them.

Answer format
- Put the whole program into one fenced block whose first line is three backticks and `python`.
- Return the complete file only: no fragments, no diffs, no placeholders. Put nothing else into fenced blocks.
- Before it, say in two or three sentences what you did."""


def system_rules(language: Language) -> str:
    """Return the rules that hold in every call for this language."""
    if language == "python":
        return _PROGRAM_RULES
    return f"""\
You write fast, correct programs. You are given a task (a reference program, its tensors, a calling contract), one
action to try, and the best code so far. Carry the action out and return a complete program.

Rules
{_CRAFT[language]}
- Correct first: every call is checked against the reference, on fresh inputs, within the tolerance of the dtype.
- Do the whole work in every call. Keep no results, inputs or addresses between calls; detect no benchmark.
- Touch no files, network, environment or other processes. Never write outside the output tensors.
- The speed that counts is the median latency against the reference, timed in turns with it.

Answer format
- Put each file into its own fenced block whose first line is three backticks, the language tag and `path=NAME`, e.g.
  ```{_tag(language)} path={MAIN_PATHS[language]}
- Return complete files only: no fragments, no diffs, no placeholders. Put nothing else into fenced blocks.
- The main file defines the entry point of the contract. Before it, say in two or three sentences what you did."""


def request_for(job: WriteCandidate) -> Request:
    """Return the question that a job asks."""
    sections = (
        job.task.prompt,
        _action(job),
        _base(job),
        _latest(job),
        _history(job.history),
        _complaint(job.complaint),
        _wanted(job),
    )
    return Request(
        request_id=job.job_id,
        role="coder",
        system=system_rules(job.language),
        parts=tuple(section for section in sections if section),
    )


def _tag(language: Language) -> str:
    return "python" if language == "triton" else language


def _action(job: WriteCandidate) -> str:
    action = job.action
    return (
        f"# Action {action.node_id}: {action.title}\n\n"
        f"Difficulty {action.difficulty} of 5.\n\n{action.description or action.title}"
    )


def _base(job: WriteCandidate) -> str:
    if job.base is None:
        start = "initial" if job.language == "python" else "reference"
        return f"# Base code\n\nThere is none yet: start from the {start} program of the task."
    outcome = job.base_outcome or "correct"
    return f"# Base code\n\nKnown good ({outcome}).\n\n{_code(job.base)}"


def _latest(job: WriteCandidate) -> str:
    if job.current is None:
        return ""
    verdict = job.current_verdict
    if verdict is None:
        said = "It has no verdict."
    elif isinstance(verdict, Measured) and not verdict.timed:
        said = "Your latest attempt is correct; how fast it is was not measured."
    elif isinstance(verdict, Measured):
        versus = f" than the base ({job.base_outcome})" if job.base is not None else ""
        said = f"Your latest attempt is correct but not faster{versus}: {outcome_line(verdict)}."
    elif isinstance(verdict, Scored):
        versus = f" than the base ({job.base_outcome})" if job.base is not None else ""
        said = "\n".join((f"Your latest attempt is no better{versus}: {outcome_line(verdict)}.", *verdict.notes))
    else:
        said = f"Your latest attempt failed.\n\n{evidence_of(verdict)}"
    return f"# Your latest attempt\n\n{said}\n\n{_code(job.current)}"


def _history(history: tuple[AttemptBrief, ...]) -> str:
    if not history:
        return ""
    shown = history[-HISTORY_SHOWN:]
    left_out = len(history) - len(shown)
    lines = [f"({left_out} earlier attempts are not shown)"] if left_out else []
    lines += [f"{brief.number}. {brief.outcome or brief.fate}" for brief in shown]
    return "# Earlier attempts at this action\n\n" + "\n".join(lines)


def _complaint(complaint: str) -> str:
    return f"# Your previous answer could not be used\n\n{complaint}" if complaint else ""


def _wanted(job: WriteCandidate) -> str:
    better, worse = ("score higher", "no better") if job.language == "python" else ("faster", "slower")
    asked = {
        "apply": _apply(job),
        "debug": "Find out why the latest attempt failed and repair it. Keep to the action; if the attempt cannot be "
        "saved, carry the action out anew on the base code.",
        "improve": f"Make the base code {better} by carrying the action further or with other parameters. Do not "
        f"repeat what the earlier attempts show to be {worse}. If you see nothing that is worth another attempt, "
        "answer with `Nothing further:` and why, and no program: other actions then come sooner.",
    }[job.mode]
    draw = f" This is draw {job.sample} for this action: choose a way that others may not." if job.sample else ""
    entry = f" with the entry point `{job.task.entry_point}`" if job.task.entry_point else ""
    return f"# What to return\n\n{asked}{draw} Return the complete program{entry} in the answer format of the rules."


def _apply(job: WriteCandidate) -> str:
    if job.base is None:
        return "Write the program, carrying out the action."
    return "Carry the action out on the base code; keep what made it good."


def _code(candidate: Candidate) -> str:
    return render_files(candidate.files, candidate.language)
