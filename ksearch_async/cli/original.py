"""The original K-Search's command line: translated flag by flag, or refused by name.

The table is also the one of docs/guides/coming-from-k-search.md; a test compares them. Names and defaults are those of
`generate_kernels_and_eval.py` (github.com/caoshiyi/K-Search), with the KernelBench flags that its later page shows.

A flag is translated to ours before the words are parsed, so `--help` shows ours only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from evaluators.tasks import is_bundled
from evaluators.tasks.gpumode.reading import recognizes
from evaluators.tasks.kernelbench import find_problem
from ksearch_async.errors import refusal

CHECKED_CALLS = 8
"""Calls on fresh inputs that are checked, at least, before a candidate gets any credit: the timed ones."""


class Same(msgspec.Struct, frozen=True):
    """Ours is called so too."""


class Renamed(msgspec.Struct, frozen=True):
    """Ours has another name."""

    ours: str


class Met(msgspec.Struct, frozen=True):
    """A switch that is always on here."""


class TaskPart(msgspec.Struct, frozen=True):
    """Says with others which task is meant."""


class AtMost(msgspec.Struct, frozen=True):
    """A number that is always reached here."""

    limit: int


class Spelled(msgspec.Struct, frozen=True):
    """A switch; ours has a value."""

    words: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True):
    """There is nothing like it."""

    instead: str


Meaning: TypeAlias = Same | Renamed | Spelled | Met | TaskPart | AtMost | Refused


class OriginalFlag(msgspec.Struct, frozen=True):
    """A flag of the original."""

    name: str
    default: str
    """The original's, as the guide shows it."""
    meaning: Meaning
    said: str
    """Differences, or the missing parts."""
    is_switch: bool = False
    """Takes no value."""

    @property
    def met(self) -> bool:
        """Say whether what it asks for is always done here."""
        return isinstance(self.meaning, Met | AtMost)

    @property
    def ours(self) -> str:
        """Equivalents of this project, as in the guide."""
        match self.meaning:
            case Same():
                return f"`--{self.name}`"
            case Renamed(ours=ours):
                return f"`--{ours}`"
            case Spelled(words=words):
                return f"`{' '.join(words)}`"
            case TaskPart():
                return "TASK"
            case Met() | AtMost():
                return "always"
            case Refused():
                return "refused"


_STOPWATCH = Refused("leave it out: pairs are timed until the speedup's interval is narrow (docs/how-we-measure.md)")
_TOLERANCE = Refused("leave it out, or name a profile: --tolerance gpumode:0.01,0.01 (docs/how-we-measure.md)")

FLAGS = (
    OriginalFlag(
        "task-source",
        "flashinfer",
        TaskPart(),
        "`flashinfer` where a definition is named, `gpumode` where a folder of its problems is, else `kernelbench`",
    ),
    OriginalFlag(
        "task-path",
        "none",
        TaskPart(),
        "a KernelBench checkout, or a FlashInfer-Bench dataset; also `--dataset-root`, or the variable `DATASET_ROOT`",
    ),
    OriginalFlag("dataset-root", "variable of the scripts", TaskPart(), "as `--task-path`"),
    OriginalFlag("kernelbench-level", "1", TaskPart(), "picks `level{N}/{ID}_*.py` of the checkout"),
    OriginalFlag("kernelbench-problem-id", "1", TaskPart(), "picks `level{N}/{ID}_*.py` of the checkout"),
    OriginalFlag(
        "kernelbench-eval-mode",
        "local",
        TaskPart(),
        "`modal` is `--device modal`: a GPU of Modal's, with the extra `modal` and an account; never tried with one",
    ),
    OriginalFlag(
        "kernelbench-num-correct-trials",
        "5",
        AtMost(CHECKED_CALLS),
        "every timed call is on fresh inputs and checked, 8 of them or more; a larger number is refused",
    ),
    OriginalFlag("kernelbench-num-perf-trials", "100", _STOPWATCH, "the number of timed calls cannot be set"),
    OriginalFlag("local", "none", TaskPart(), "a FlashInfer-Bench dataset, as `--task-path`"),
    OriginalFlag("definition", "none", TaskPart(), "with the dataset it means `flashinfer:DATASET#DEFINITION`"),
    OriginalFlag(
        "model-name", "required", Renamed("model"), "without one the built-in rules write, which are no language model"
    ),
    OriginalFlag("base-url", "none", Same(), "the same"),
    OriginalFlag(
        "api-key",
        "`LLM_API_KEY`",
        Refused("set KSEARCH_API_KEY, OPENAI_API_KEY or LLM_API_KEY in the environment"),
        "a key on a command line can be read by every user of the machine",
    ),
    OriginalFlag("language", "triton", Same(), "default `cpp`; see `ksearch run --help` for what there is"),
    OriginalFlag(
        "target-gpu",
        "H100",
        Same(),
        "the original only tells the model; here it must be the device that the run is timed on",
    ),
    OriginalFlag("max-opt-rounds", "5", Renamed("max-rounds"), "default 40; counts evaluations, as the original does"),
    OriginalFlag(
        "world-model",
        "off",
        Same(),
        "default `evolving`, which the flag without a value means too; also `frozen` and `off`",
    ),
    OriginalFlag(
        "wm-stagnation-window",
        "5",
        Renamed("window"),
        "default 3, and 5 (`--repair-window`) as long as nothing is correct",
    ),
    OriginalFlag(
        "wm-max-difficulty",
        "4",
        Renamed("max-difficulty"),
        "default 5, and kept as set: the original moves it to 4 once a kernel is good",
    ),
    OriginalFlag(
        "continue-from-solution",
        "none",
        Same(),
        "a source file, a run or its `best` folder; solutions in the original's JSON cannot be read",
    ),
    OriginalFlag(
        "continue-from-world-model",
        "none",
        Same(),
        "`auto`, a run, a run's `world_model/latest.json`, or a world model of the original's: models see its results "
        "as history",
    ),
    OriginalFlag(
        "save-solutions",
        "off",
        Met(),
        "every candidate is kept, in the run's candidates/ and in its journal",
        is_switch=True,
    ),
    OriginalFlag("no-save-results", "off", Met(), "nothing is ever written to a dataset", is_switch=True),
    OriginalFlag(
        "artifacts-dir", "`.ksearch`", Renamed("runs-dir"), "default `runs`; each run has a folder of its own in it"
    ),
    OriginalFlag(
        "run-name", "`RUN_NAME`", Same(), "names the run's folder; without it the name is made of task and time"
    ),
    OriginalFlag(
        "wandb",
        "off",
        Spelled(("--track", "wandb")),
        "needs the extra `wandb`; the original's keys and artifacts, and ours: [tracking](tracking.md)",
        is_switch=True,
    ),
    OriginalFlag(
        "wandb-project", "`WANDB_PROJECT`", Renamed("track-project"), "default `WANDB_PROJECT`, else `ksearch`"
    ),
    OriginalFlag(
        "baseline-solution",
        "none",
        Refused("leave it out: every speedup is against the problem's own reference"),
        "there is no other baseline than the reference",
    ),
    OriginalFlag("warmup-runs", "10", _STOPWATCH, "warm-up is the stopwatch's business"),
    OriginalFlag("iterations", "10", _STOPWATCH, "the number of timed calls cannot be set"),
    OriginalFlag("num-trials", "1", _STOPWATCH, "the number of timed calls cannot be set"),
    OriginalFlag("rtol", "0.01", _TOLERANCE, "a profile says both tolerances"),
    OriginalFlag("atol", "0.01", _TOLERANCE, "a profile says both tolerances"),
    OriginalFlag("use-isolated-runner", "off", Met(), "every candidate runs in a process of its own", is_switch=True),
    OriginalFlag(
        "parallel-workloads",
        "off",
        Refused("leave it out: --evaluators judges several candidates at once"),
        "one judge goes through a task's workloads; they are timed one at a time, or they would disturb one another",
        is_switch=True,
    ),
    OriginalFlag(
        "max-parallel-workloads",
        "0",
        Refused("leave it out: --evaluators says how many candidates are judged at once"),
        "as `--parallel-workloads`",
    ),
    OriginalFlag(
        "num-eval-workload",
        "all",
        Refused("name the workloads that count behind the task: FILE.py:short,long"),
        "all workloads of a task are always evaluated; which ones those are is part of the task",
    ),
    OriginalFlag(
        "feedback-workloads",
        "5 at random",
        TaskPart(),
        "ids of a definition's workloads; without it five are drawn with seed 0, and the task's name says so; feedback "
        "tells of all of them",
    ),
    OriginalFlag(
        "num-feedback-workloads", "5", TaskPart(), "how many are drawn; `DEFINITION:draw=5,seed=7,hidden=3` says more"
    ),
    OriginalFlag(
        "feedback-trace-policy",
        "first",
        Refused("leave it out: the first failing workload decides, and is named"),
        "a failure is reported for the first workload that fails, the cheapest first",
    ),
    OriginalFlag(
        "gpumode-mode",
        "benchmark",
        TaskPart(),
        "`benchmark` and `leaderboard` time the benchmarks and hold the tests out; `test` is the tests alone",
    ),
    OriginalFlag(
        "gpumode-keep-tmp",
        "off",
        Met(),
        "every candidate is kept, in the run's candidates/ and in its journal",
        is_switch=True,
    ),
    OriginalFlag(
        "gpumode-task-dir",
        "its own TriMul",
        TaskPart(),
        "a problem's folder in a checkout of reference-kernels; also the variable `GPUMODE_TASK_DIR`",
    ),
)
"""All of them, in the guide's order."""


DATASET_VARIABLE = "DATASET_ROOT"
"""Where the original's scripts look for a dataset."""
_FLASHINFER_VARIABLES = (DATASET_VARIABLE, "FIB_DATASET_PATH")
_OF_FLASHINFER = ("local", "definition", "feedback-workloads", "num-feedback-workloads")
_OF_GPUMODE = ("gpumode-task-dir", "gpumode-mode")
_EVAL_MODES: Mapping[str, tuple[str, ...]] = {"local": (), "modal": ("--device", "modal")}
_OF_KERNELBENCH = ("kernelbench-level", "kernelbench-problem-id", "kernelbench-eval-mode")
_OWN = {"flashinfer": _OF_FLASHINFER, "gpumode": _OF_GPUMODE, "kernelbench": _OF_KERNELBENCH}
"""Flags that only a source's tasks have; of several sources that are named so, the first counts."""
_GPUMODE_VARIABLE = "GPUMODE_TASK_DIR"
_GPUMODE_CASES = {"benchmark": "", "leaderboard": "", "test": ":test"}
_SAID = {flag.name: flag.said.replace("`", "") for flag in FLAGS}


def task_words(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the task that the flags name: no word where they leave it to TASK.

    Args:
        given: flags that say which task is meant, with their values.
        environment: where a dataset may be named.

    Raises:
        ConfigError: they name none that there is, or of two sources at once.
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
    """Return a flag's whole number.

    Raises:
        ConfigError: it is none.
    """
    if not (text.isascii() and text.isdecimal()):
        raise refusal(f"--{name}: expected a whole number, not {text!r}")
    return int(text)


def _flashinfer(given: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return `flashinfer:DATASET#DEFINITION`, with the workloads that are meant."""
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
    """Return `gpumode:FOLDER`, with the cases that a mode means."""
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
    """Return the path of a problem's file."""
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
    """The notice about flags without an effect here."""


def translated(tokens: Sequence[str], environment: Mapping[str, str]) -> Translation:
    """Put the original's flags into ours; words that are not the original's stay as they are.

    Args:
        tokens: what follows `ksearch run`.
        environment: where `DATASET_ROOT` is looked for.

    Raises:
        ConfigError: a flag that has no counterpart, with what to use instead; a value that is missing or wrong.
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
        if isinstance(flag.meaning, TaskPart):
            task[name] = given
        elif flag.met:
            notes.append(_met(flag, given))
        else:
            ours += _in_ours(flag, given)
    return Translation(tokens=(*task_words(task, environment), *ours), notes=tuple(notes))


def _given(flag: OriginalFlag, inline: str | None, waiting: deque[str]) -> str:
    """Return the flag's value, as it was given behind `=` or in the next word; none for a switch."""
    if isinstance(flag.meaning, Refused):
        raise refusal(f"--{flag.name}: {flag.said}", flag.meaning.instead)
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


def _in_ours(flag: OriginalFlag, given: str) -> tuple[str, ...]:
    if isinstance(flag.meaning, Spelled):
        return flag.meaning.words
    name = flag.meaning.ours if isinstance(flag.meaning, Renamed) else flag.name
    return f"--{name}", given


def _met(flag: OriginalFlag, given: str) -> str:
    """Return what is said of a flag that asks for what is always done."""
    if isinstance(flag.meaning, AtMost) and number_of(flag.name, given) > flag.meaning.limit:
        raise refusal(f"--{flag.name}: {flag.said}", f"leave it out, or give at most {flag.meaning.limit}")
    return f"note: --{flag.name}: {flag.said}"


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise refusal(f"--{name}: expected a whole number, not {text!r}")
    return int(text)
