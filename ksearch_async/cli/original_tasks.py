"""Which task the original K-Search's flags mean, as a name of ours."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluators.tasks.gpumode.reading import recognizes
from evaluators.tasks.kernelbench import find_problem
from ksearch_async.cli.original_flags import FLAGS
from ksearch_async.refusals import refusal

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
