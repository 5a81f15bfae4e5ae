"""The original K-Search's command line: translated flag by flag, or refused by name.

The table is also the one of docs/guides/coming-from-k-search.md; a test compares them. Names and defaults are those of
`generate_kernels_and_eval.py` (github.com/caoshiyi/K-Search), with the KernelBench flags that its later page shows.

A flag is translated to ours before the words are parsed, so `--help` shows ours only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from evaluators.tasks import is_bundled
from evaluators.tasks.gpumode.reading import recognizes
from evaluators.tasks.kernelbench import find_problem
from ksearch_async.errors import refusal

CHECKED_CALLS = 8
"""Least number of calls on fresh inputs that are checked before a candidate gets credit: the timed calls."""


class OriginalFlag(msgspec.Struct, frozen=True):
    """A flag of the original; a row of the guide's table."""

    name: str
    here: str
    """Our flag; or `TASK`: part of the task's name; `always`: always done here; `refused`: has no counterpart."""
    said: str
    """How ours differs, or what is missing."""
    instead: str = ""
    """Replacement for a refused flag."""
    limit: int | None = None
    """Number that is always reached here. A larger one is refused."""
    is_switch: bool = False
    """True if the flag takes no value."""


_STOPWATCH = "leave it out: pairs are timed until the speedup's interval is narrow (docs/how-we-measure.md)"
_TOLERANCE = "leave it out, or name a profile: --tolerance gpumode:0.01,0.01 (docs/how-we-measure.md)"

FLAGS = (
    OriginalFlag(
        "task-source",
        "TASK",
        "`flashinfer` where a definition is named, `gpumode` where a folder of its problems is, else `kernelbench`",
    ),
    OriginalFlag(
        "task-path",
        "TASK",
        "a KernelBench checkout, or a FlashInfer-Bench dataset; also `--dataset-root`, or the variable `DATASET_ROOT`",
    ),
    OriginalFlag("dataset-root", "TASK", "as `--task-path`"),
    OriginalFlag("kernelbench-level", "TASK", "picks `level{N}/{ID}_*.py` of the checkout"),
    OriginalFlag("kernelbench-problem-id", "TASK", "picks `level{N}/{ID}_*.py` of the checkout"),
    OriginalFlag(
        "kernelbench-eval-mode",
        "TASK",
        "`modal` is `--device modal`: a GPU of Modal's, with the extra `modal` and an account; never tried with one",
    ),
    OriginalFlag(
        "kernelbench-num-correct-trials",
        "always",
        "every timed call is on fresh inputs and checked, 8 of them or more; a larger number is refused",
        limit=CHECKED_CALLS,
    ),
    OriginalFlag(
        "kernelbench-num-perf-trials", "refused", "the number of timed calls cannot be set", instead=_STOPWATCH
    ),
    OriginalFlag("local", "TASK", "a FlashInfer-Bench dataset, as `--task-path`"),
    OriginalFlag("definition", "TASK", "with the dataset it means `flashinfer:DATASET#DEFINITION`"),
    OriginalFlag("model-name", "--model", "without one the built-in rules write, which are no language model"),
    OriginalFlag("base-url", "--base-url", "the same"),
    OriginalFlag(
        "api-key",
        "refused",
        "a key on a command line can be read by every user of the machine",
        instead="set KSEARCH_API_KEY, OPENAI_API_KEY or LLM_API_KEY in the environment",
    ),
    OriginalFlag("language", "--language", "default `cpp`; see `ksearch run --help` for what there is"),
    OriginalFlag(
        "target-gpu",
        "--target-gpu",
        "the original only tells the model; here it must be the device that the run is timed on",
    ),
    OriginalFlag("max-opt-rounds", "--max-rounds", "default 40; counts evaluations, as the original does"),
    OriginalFlag(
        "world-model",
        "--world-model",
        "default `evolving`, which the flag without a value means too; also `frozen` and `off`",
    ),
    OriginalFlag(
        "wm-stagnation-window", "--window", "default 3, and 5 (`--repair-window`) as long as nothing is correct"
    ),
    OriginalFlag(
        "wm-max-difficulty",
        "--max-difficulty",
        "default 5, and kept as set: the original moves it to 4 once a kernel is good",
    ),
    OriginalFlag(
        "continue-from-solution",
        "--continue-from-solution",
        "a source file, a run or its `best` folder; solutions in the original's JSON cannot be read",
    ),
    OriginalFlag(
        "continue-from-world-model",
        "--continue-from-world-model",
        "`auto`, a run, a run's `world_model/latest.json`, or a world model of the original's: models see its results "
        "as history",
    ),
    OriginalFlag(
        "save-solutions",
        "always",
        "every candidate is kept, in the run's candidates/ and in its journal",
        is_switch=True,
    ),
    OriginalFlag("no-save-results", "always", "nothing is ever written to a dataset", is_switch=True),
    OriginalFlag("artifacts-dir", "--runs-dir", "default `runs`; each run has a folder of its own in it"),
    OriginalFlag("run-name", "--run-name", "names the run's folder; without it the name is made of task and time"),
    OriginalFlag(
        "wandb",
        "--track wandb",
        "needs the extra `wandb`; the original's keys and artifacts, and ours: [tracking](tracking.md)",
        is_switch=True,
    ),
    OriginalFlag("wandb-project", "--track-project", "default `WANDB_PROJECT`, else `ksearch`"),
    OriginalFlag(
        "baseline-solution",
        "refused",
        "there is no other baseline than the reference",
        instead="leave it out: every speedup is against the problem's own reference",
    ),
    OriginalFlag("warmup-runs", "refused", "warm-up is the stopwatch's business", instead=_STOPWATCH),
    OriginalFlag("iterations", "refused", "the number of timed calls cannot be set", instead=_STOPWATCH),
    OriginalFlag("num-trials", "refused", "the number of timed calls cannot be set", instead=_STOPWATCH),
    OriginalFlag("rtol", "refused", "a profile says both tolerances", instead=_TOLERANCE),
    OriginalFlag("atol", "refused", "a profile says both tolerances", instead=_TOLERANCE),
    OriginalFlag("use-isolated-runner", "always", "every candidate runs in a process of its own", is_switch=True),
    OriginalFlag(
        "parallel-workloads",
        "refused",
        "one judge goes through a task's workloads; they are timed one at a time, or they would disturb one another",
        instead="leave it out: --evaluators judges several candidates at once",
        is_switch=True,
    ),
    OriginalFlag(
        "max-parallel-workloads",
        "refused",
        "as `--parallel-workloads`",
        instead="leave it out: --evaluators says how many candidates are judged at once",
    ),
    OriginalFlag(
        "num-eval-workload",
        "refused",
        "all workloads of a task are always evaluated; which ones those are is part of the task",
        instead="name the workloads that count behind the task: FILE.py:short,long",
    ),
    OriginalFlag(
        "feedback-workloads",
        "TASK",
        "ids of a definition's workloads; without it five are drawn with seed 0, and the task's name says so; feedback "
        "tells of all of them",
    ),
    OriginalFlag("num-feedback-workloads", "TASK", "how many are drawn; `DEFINITION:draw=5,seed=7,hidden=3` says more"),
    OriginalFlag(
        "feedback-trace-policy",
        "refused",
        "a failure is reported for the first workload that fails, the cheapest first",
        instead="leave it out: the first failing workload decides, and is named",
    ),
    OriginalFlag(
        "gpumode-mode",
        "TASK",
        "`benchmark` and `leaderboard` time the benchmarks and hold the tests out; `test` is the tests alone",
    ),
    OriginalFlag(
        "gpumode-keep-tmp",
        "always",
        "every candidate is kept, in the run's candidates/ and in its journal",
        is_switch=True,
    ),
    OriginalFlag(
        "gpumode-task-dir",
        "TASK",
        "a problem's folder in a checkout of reference-kernels; also the variable `GPUMODE_TASK_DIR`",
    ),
)
"""All flags of the original, in the guide's order."""


DATASET_VARIABLE = "DATASET_ROOT"
"""Variable that names the dataset in the original's scripts."""
_FLASHINFER_VARIABLES = (DATASET_VARIABLE, "FIB_DATASET_PATH")
_OF_FLASHINFER = ("local", "definition", "feedback-workloads", "num-feedback-workloads")
_OF_GPUMODE = ("gpumode-task-dir", "gpumode-mode")
_EVAL_MODES: Mapping[str, tuple[str, ...]] = {"local": (), "modal": ("--device", "modal")}
_OF_KERNELBENCH = ("kernelbench-level", "kernelbench-problem-id", "kernelbench-eval-mode")
_OWN = {"flashinfer": _OF_FLASHINFER, "gpumode": _OF_GPUMODE, "kernelbench": _OF_KERNELBENCH}
"""Flags that belong to one source's tasks. If several sources are named that way, the first counts."""
_GPUMODE_VARIABLE = "GPUMODE_TASK_DIR"
_GPUMODE_CASES = {"benchmark": "", "leaderboard": "", "test": ":test"}
_SAID = {flag.name: flag.said.replace("`", "") for flag in FLAGS}


def task_words(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that name the task by the original's flags; none if TASK names it.

    Args:
        given: flags that name the task, with their values.
        environment: environment that may name a dataset.
    """
    named = (source for source, flags in _OWN.items() if set(flags) & set(given))
    source = given.get("task-source") or next(named, "kernelbench")
    if source not in _OWN:
        raise refusal(f"--task-source {source}: {_SAID['task-source']}", "name a task of that source as TASK")
    others = (name for other, flags in _OWN.items() if other != source for name in flags)
    if foreign := next((name for name in others if name in given), ""):
        raise refusal(
            f"--{foreign} says nothing of a task of {source}", "leave it out, or name the other --task-source"
        )
    return _WORDS[source](given, environment)


def number_of(name: str, text: str) -> int:
    """Return a flag's whole number."""
    if not (text.isascii() and text.isdecimal()):
        raise refusal(f"--{name}: expected a whole number, not {text!r}")
    return int(text)


def _flashinfer(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    said = [name for name in (*_OF_FLASHINFER, "dataset-root", "task-path") if name in given]
    if "definition" not in given:
        if not said:
            return ()
        raise refusal(f"--{said[0]}: no definition is named", "name one: --definition NAME")
    roots = [given.get(name, "") for name in ("local", "task-path", "dataset-root")]
    root = next(filter(None, (*roots, *(environment.get(name, "") for name in _FLASHINFER_VARIABLES))), "")
    if not root:
        hint = f"give a FlashInfer-Bench dataset: --local FOLDER, or a variable: {', '.join(_FLASHINFER_VARIABLES)}"
        raise refusal("--definition: no dataset is given", hint)
    workloads = given.get("feedback-workloads", "")
    if not workloads and "num-feedback-workloads" in given:
        workloads = f"draw={number_of('num-feedback-workloads', given['num-feedback-workloads'])},seed=0"
    return (f"flashinfer:{root}#{given['definition']}{':' if workloads else ''}{workloads}",)


def _gpumode(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    mode = given.get("gpumode-mode", "benchmark")
    if mode not in _GPUMODE_CASES:
        raise refusal(f"--gpumode-mode {mode}: {_SAID['gpumode-mode']}", f"one of {', '.join(_GPUMODE_CASES)}")
    said = [name for name in (*_OF_GPUMODE, "task-path") if name in given]
    named = given.get("gpumode-task-dir") or given.get("task-path") or environment.get(_GPUMODE_VARIABLE, "")
    if named and not recognizes(Path(named).expanduser()):
        raise refusal(f"{named!r} is no folder of a GPUMode problem", "it holds a task.yml: …/problems/bioml/trimul")
    if named:
        return (f"gpumode:{named}{_GPUMODE_CASES[mode]}",)
    if said:
        raise refusal(
            f"--{said[0]}: no problem is named", f"name its folder: --gpumode-task-dir, or {_GPUMODE_VARIABLE}"
        )
    return ()


def _kernelbench(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    mode = given.get("kernelbench-eval-mode", "local")
    if mode not in _EVAL_MODES:
        raise refusal(f"--kernelbench-eval-mode {mode}: it is {' or '.join(_EVAL_MODES)}", "leave it out")
    numbers = [name for name in ("kernelbench-level", "kernelbench-problem-id") if name in given]
    root = given.get("dataset-root") or given.get("task-path")
    if not numbers and not root:
        return ()
    root = root or environment.get(DATASET_VARIABLE)
    if not root:
        hint = f"give a KernelBench checkout: --dataset-root FOLDER, or the variable {DATASET_VARIABLE}"
        raise refusal(f"--{numbers[0]}: no dataset is given", hint)
    level, problem_id = (
        number_of(name, given.get(name, "1")) for name in ("kernelbench-level", "kernelbench-problem-id")
    )
    return (str(find_problem(Path(root), level, problem_id)), *_EVAL_MODES[mode])


_WORDS = {"flashinfer": _flashinfer, "gpumode": _gpumode, "kernelbench": _kernelbench}


_BY_NAME = {flag.name: flag for flag in FLAGS}


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """The words of `ksearch run` in our own flags."""

    tokens: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """Notices about flags that have no effect here."""


def translated(tokens: Sequence[str], environment: Mapping[str, str]) -> Translation:
    """Translate the original's flags into ours. Other words stay as they are.

    Args:
        tokens: the words after `ksearch run`.
        environment: environment that may hold `DATASET_ROOT`.
    """
    waiting, ours, notes = deque(tokens), list[str](), list[str]()
    task: dict[str, str] = {}
    while waiting:
        token = waiting.popleft()
        name, equals, value = token.removeprefix("--").partition("=")
        flag = _BY_NAME.get(name) if token.startswith("--") else None
        if flag is None:
            ours.append(token)
            continue
        given = _given(flag, value if equals else None, waiting)
        if flag.here == "TASK":
            task[name] = given
        elif flag.here == "always":
            if flag.limit is not None and number_of(name, given) > flag.limit:
                raise refusal(f"--{name}: {flag.said}", f"leave it out, or give at most {flag.limit}")
            notes.append(f"note: --{name}: {flag.said}")
        else:
            ours += [*flag.here.split(), *([] if flag.is_switch else [given])]
    return Translation(tokens=(*task_words(task, environment), *ours), notes=tuple(notes))


def _given(flag: OriginalFlag, inline: str | None, waiting: deque[str]) -> str:
    """Return the flag's value, as it was given behind `=` or in the next word; none for a switch."""
    if flag.here == "refused":
        raise refusal(f"--{flag.name}: {flag.said}", flag.instead)
    if flag.is_switch:
        if inline is not None:
            raise refusal(f"--{flag.name} takes no value")
        return ""
    if inline is not None:
        return inline
    if flag.name == "world-model" and not (waiting and _could_be_a_mode(waiting[0])):
        return "evolving"  # the original's flag has no value
    if not waiting or waiting[0].startswith("--"):
        raise refusal(f"--{flag.name} needs a value")
    given = [waiting.popleft()]
    while flag.name == "feedback-workloads" and waiting and not waiting[0].startswith("-"):
        given.append(waiting.popleft())
    return ",".join(given)


def _could_be_a_mode(word: str) -> bool:
    """Say so unless it is an option or a task: a misspelt mode is to be refused as one."""
    return not (word.startswith("-") or word.endswith(".py") or "/" in word or is_bundled(word))
