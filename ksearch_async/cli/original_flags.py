"""The flags of the original K-Search: what each stands for here, or why there is nothing like it.

The table is also the one of docs/guides/coming-from-k-search.md; a test compares them. Names and defaults are those of
`generate_kernels_and_eval.py` (github.com/caoshiyi/K-Search), with the KernelBench flags that its later page shows.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

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
    """What is different here, or what is missing."""
    is_switch: bool = False
    """Takes no value."""

    @property
    def met(self) -> bool:
        """Say whether what it asks for is always done here."""
        return isinstance(self.meaning, Met | AtMost)

    @property
    def ours(self) -> str:
        """What to use here, as the guide shows it."""
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
