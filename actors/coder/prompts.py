"""Prompts for a coder's model. Pure text, ordered from the least to the most changing part, for prefix caches.

The order is: system rules, task, hardware, people's instructions, action, base, code to merge, latest attempt, history,
complaint, request. Rules and task stay the same for a run, action and base for a branch. Every prompt contains the
action, since attempts that debug or improve still serve it.
"""

from __future__ import annotations

from collections import Counter

from actors.coder.answers import MAX_REFUSED_BLOCKS, blocks_failed, edited, wants_edits
from actors.coder.evidence import evidence_of
from actors.coder.parse import render_files
from actors.llm.base import Request
from evaluators.hardware.profiles import describe_profile
from evaluators.hardware.roofline import describe_hardware, hardware_of, roofline, roofline_lines, share_text
from evaluators.languages import SPECS
from messages.base import Language
from messages.commands import WriteCandidate
from messages.tasks import AttemptBrief, Candidate
from messages.verdicts import Measured, Outpaced, Scored, Unstable, outcome_line, workload_lines

HISTORY_SHOWN = 12
"""Latest attempts of the branch that are listed; older ones are only counted."""
OUTCOME_CHARS = 320
"""Maximum length of one listed outcome."""

_PROGRAM_RULES = """\
You improve programs. You are given a task (an initial program, what its evaluator says of itself), one action to try,
and the best code so far. Carry the action out and return a complete program.

Rules
- Write Python for the interpreter that runs the evaluator, with the modules that are there.
- The evaluator's score is all that counts: the larger the better. A program that raises, hangs or ends its process has
  none.
- Earn the score: detect no evaluator, and touch no files, network or other processes unless the task is about them.

Answer format
- Put the whole program into one fenced block whose first line is three backticks and `python`.
- Return the complete file: no fragments, no diffs, no placeholders. Put nothing else into fenced blocks.
- Before it, say in two or three sentences what you did."""

_EDIT_RULES = """\


Answering with search/replace blocks, where the end of the question asks for them
- Each block names whole lines of the code that are there exactly once, copied to the letter with their indentation,
  and what takes their place. The fence says which file:
  ```{tag} path={path}
  <<<<<<< SEARCH
  lines that are there
  =======
  lines that take their place
  >>>>>>> REPLACE
  ```
- Several blocks may stand in one fence, one behind the other; each is applied to what the earlier ones left. New files
  are given whole, with `path=NAME`. If most of a program changes, return complete files instead."""


def system_rules(language: Language, *, is_program: bool = False, edits: bool = True) -> str:
    """Return the rules of every call, for kernels in this language or for programs with their own evaluator.

    `edits`: whether search/replace blocks may be requested.
    """
    edit_rules = _EDIT_RULES.format(tag=SPECS[language].fences[0], path=SPECS[language].main_path) if edits else ""
    if is_program:
        return _PROGRAM_RULES + edit_rules
    return f"""\
You write fast, correct programs. You are given a task (a reference program, its tensors, a calling contract), one
action to try, and the best code so far. Carry the action out and return a complete program.

Rules
{SPECS[language].craft.RULES}
- Correct first: every call is checked against the reference, on fresh inputs, within the tolerance of the dtype.
- Do the whole work in every call: the tensors' contents and addresses change. Keep no results, inputs or addresses
  between calls; detect no benchmark.
- Touch no files, network, environment or other processes. Never write outside the output tensors.
- The speed that counts is the median latency against the reference, timed in turns with it.

Answer format
- Put each file into its own fenced block whose first line is three backticks, the language tag and `path=NAME`, e.g.
  ```{SPECS[language].fences[0]} path={SPECS[language].main_path}
- Return complete files: no fragments, no diffs, no placeholders. Put nothing else into fenced blocks, and nothing but a
  line between them.
- The main file defines the entry point of the contract. Before it, say in two or three sentences what
  you did.{edit_rules}

An answer to another task:
{SPECS[language].craft.EXAMPLE}"""


def request_for(job: WriteCandidate) -> Request:
    """Return the model request for a job."""
    # Indent further lines, so that they cannot be headings.
    minded = ["- " + text.replace("\n", "\n  ") for text in job.instructions]
    sections = (
        job.task.prompt,
        _hardware(job),
        "\n".join(["# What the people who run this search want minded", "", *minded]) if minded else "",
        _action(job),
        _base(job),
        _second(job),
        _latest(job),
        _history(job.history),
        f"# Your previous answer could not be used\n\n{job.complaint}" if job.complaint else "",
        _wanted(job),
    )
    return Request(
        request_id=job.job_id,
        role="coder",
        system=system_rules(job.language, is_program=_is_program(job), edits=job.edit_format != "whole"),
        parts=tuple(section for section in sections if section),
    )


def _is_program(job: WriteCandidate) -> bool:
    return not job.task.entry_point


def _hardware(job: WriteCandidate) -> str:
    if job.target is None or _is_program(job):
        return ""
    lines = [f"- {line}" for line in SPECS[job.language].craft.advice(hardware_of(job.target))]
    return "\n".join(("# Hardware", "", describe_hardware(job.target), *lines, *roofline_lines(job.task, job.target)))


def _action(job: WriteCandidate) -> str:
    action = job.action
    return (
        f"# Action {action.node_id}: {action.title}\n\n"
        f"Difficulty {action.difficulty} of 5.\n\n{action.description or action.title}"
    )


def _base(job: WriteCandidate) -> str:
    if job.base is None:
        start = "initial" if _is_program(job) else "reference"
        return f"# Base code\n\nThere is none yet: start from the {start} program of the task."
    outcome = job.base_outcome or "correct"
    parts = (f"# Base code\n\nKnown good ({outcome}).", describe_profile(job.base_profile), _code(job.base))
    return "\n\n".join(part for part in parts if part)


def _second(job: WriteCandidate) -> str:
    if job.second is None:
        return ""
    outcome = job.second_outcome or "correct"
    base = f" ({job.base_outcome})" if job.base_outcome else ""
    return (
        f"# Code of another branch, to merge\n\nAlso known good ({outcome}). It reached that by other means than the "
        f"base code{base}: take over the technique that the action names, and keep what makes the base code good.\n\n"
        f"{_code(job.second)}"
    )


def _latest(job: WriteCandidate) -> str:
    if job.current is None:
        return ""
    verdict = job.current_verdict
    if verdict is None:
        said = "It has no verdict."
    elif isinstance(verdict, Measured) and not verdict.timed:
        said = "Your latest attempt is correct; how fast it is was not measured."
    elif isinstance(verdict, Measured | Scored):
        said = _no_better(job, verdict)
    elif isinstance(verdict, Unstable):
        said = (
            f"Your latest attempt is correct, but even measured again its time could not be told: {verdict.reason}. "
            "Nothing is to be repaired; prefer ways whose time is steady."
        )
    elif isinstance(verdict, Outpaced):
        said = f"Your latest attempt is correct but clearly slower than the best: {verdict.reason}."
    else:
        said = f"Your latest attempt failed.\n\n{evidence_of(verdict, job.current)}"
    return f"# Your latest attempt\n\n{said}\n\n{_code(job.current)}"


def _no_better(job: WriteCandidate, verdict: Measured | Scored) -> str:
    versus = f" than the base ({job.base_outcome})" if job.base is not None else ""
    if isinstance(verdict, Scored):
        return "\n".join((f"Your latest attempt is no better{versus}: {outcome_line(verdict)}.", *verdict.notes))
    found = roofline(job.task, job.target) if job.target and not job.task.workloads else None
    share = f"; {share_text(found, verdict.latency_us)}" if found and verdict.latency_us else ""
    lines = [f"Your latest attempt is correct but not faster{versus}: {outcome_line(verdict)}{share}."]
    return "\n".join((*lines, *(f"- {line}" for line in workload_lines(verdict))))


def _history(history: tuple[AttemptBrief, ...]) -> str:
    if not history:
        return ""
    shown = history[-HISTORY_SHOWN:]
    left_out = len(history) - len(shown)
    fates = Counter(brief.fate for brief in history)
    lines = [f"{len(history)} so far: {', '.join(f'{count} {fate}' for fate, count in fates.most_common())}.", ""]
    lines += [f"({left_out} earlier attempts are not shown)"] if left_out else []
    for brief in shown:
        words = " ".join((brief.outcome or brief.fate).split())
        short = words if len(words) <= OUTCOME_CHARS else f"{words[:OUTCOME_CHARS].rpartition(' ')[0]} …"
        lines.append(f"{brief.number}. {short}")
    return "# Earlier attempts at this action\n\n" + "\n".join(lines)


def _wanted(job: WriteCandidate) -> str:
    better, worse = ("score higher", "no better") if _is_program(job) else ("faster", "slower")
    asked = {
        "apply": _apply(job),
        "debug": "Find out why the latest attempt failed and repair it. Keep to the action; if the attempt cannot be "
        "saved, carry the action out anew on the base code.",
        "improve": f"Make the base code {better} by carrying the action further or with other parameters. Do not "
        f"repeat what the earlier attempts show to be {worse}. If you see nothing that is worth another attempt, "
        "answer with `Nothing further:` and why, and no program: other actions then come sooner.",
    }[job.mode]
    draw = f" This is draw {job.sample} for this action: choose a way that others may not." if job.sample else ""
    return f"# What to return\n\n{asked}{draw} {_format_wanted(job)}"


def _apply(job: WriteCandidate) -> str:
    if job.base is None:
        return "Write the program, carrying out the action."
    if job.second is not None:
        return "Merge the two programs as the action says, into one that is better than both."
    return "Carry the action out on the base code; keep what made it good."


def _format_wanted(job: WriteCandidate) -> str:
    entry = f" with the entry point `{job.task.entry_point}`" if job.task.entry_point else ""
    shown = edited(job)
    if blocks_failed(job) and job.edit_format != "whole":
        return (
            f"The search/replace blocks of your last {MAX_REFUSED_BLOCKS} answers did not match: return the complete "
            f"program{entry}, and no blocks."
        )
    if shown is None or not wants_edits(job):
        return f"Return the complete program{entry} in the answer format of the rules."
    return (
        f"Answer with search/replace blocks against {shown.name}; if most of it changes, with the complete program"
        f"{entry}."
    )


def _code(candidate: Candidate) -> str:
    return render_files(candidate.files, candidate.language)
