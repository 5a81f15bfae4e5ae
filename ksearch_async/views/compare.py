"""Compares runs of one task, grouped by their setup without the seed: medians and ranges over seeds.

Only runs of the same task are compared; other tolerances, rules or workloads make another task. Runs on different
devices are in different groups. Pure: reads no files and prints nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, isfinite
from statistics import median

import msgspec

from ksearch_async.errors import refusal
from ksearch_async.runs.run import DUPLICATE, Against, Place, Run
from ksearch_async.settings.run_config import flatten
from ksearch_async.views.report.data import LEVELS, Series, reached
from ksearch_async.views.text import counted, duration
from messages.events import RunStarted
from messages.tasks import TaskSpec
from messages.verdicts import GOOD_FATES, score_text

_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SHOWN_LEVELS = 3
_LONGEST = 60
_AS_IT_SHOULD = GOOD_FATES | {"declined", "outpaced", DUPLICATE}
"""Statuses that need no line of their own. `unstable` has one, since it shows that a host is not quiet."""
_BRIEF = ("device", "language", "model", "world_model", "branches", "budget.max_rounds")
"""Traits that are shown even where all runs share them."""


class Entrant(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a comparison."""

    run_id: str
    """Name of its folder."""
    task: TaskSpec
    seed: int
    traits: dict[str, str]
    """Its setup without task and seed: device, compiler, models, settings."""
    run: Run


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs with the same traits."""

    name: str
    """A letter."""
    told: str
    """Its differences from the other groups; empty if there is no other."""
    entrants: tuple[Entrant, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs of its entrants."""
        return tuple(entrant.run for entrant in self.entrants)

    @property
    def label(self) -> str:
        """Its name in a figure."""
        runs = counted(len(self.entrants), "run", "runs")
        return f"{self.name}: {self.told} ({runs})" if self.told else runs


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one task, in groups, in the order in which they were given."""

    task: str
    scored: bool
    common: dict[str, str]
    """Traits that all runs share."""
    groups: tuple[Group, ...]

    @property
    def series(self) -> tuple[Series, ...]:
        """The groups as series of figures."""
        return tuple(Series(label=group.label, runs=group.runs) for group in self.groups)

    @property
    def brief(self) -> str:
        """The shared traits that matter most: device, models, size."""
        return ", ".join(trait_words(name, self.common[name]) for name in _BRIEF if name in self.common)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A figure over the runs of a group: known values, median and range."""

    runs: int
    known: int
    """Number of runs that have the figure; the others never got there."""
    median: float | None
    """Median over all runs; runs without the figure count as worse than any. Null if half of them or more have none."""
    low: float | None
    high: float | None
    """Over the runs that have the figure."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the table: one cell per group."""

    title: str
    cells: tuple[str, ...]


def entrant_of(run_id: str, run: Run) -> Entrant:
    """Return a run's entry in a comparison.

    Raises:
        ConfigError: it has not begun.
    """
    started = run.started
    if started is None:
        raise refusal(f"run {run_id!r} has not begun yet")
    return Entrant(
        run_id=run_id,
        task=started.task,
        seed=started.seed,
        traits=traits_of(started, run.models, msgspec.to_builtins(run.settings)),
        run=run,
    )


def traits_of(started: RunStarted, models: Sequence[str], settings: Mapping[str, object]) -> dict[str, str]:
    """Return a run's setup without its task and seed, by dotted name."""
    target = started.target
    begun_with = [name for name in ("solution", "heritage") if getattr(started, name) is not None]
    named = {
        "device": target.device,
        "toolchain": " ".join(filter(None, (target.arch, target.march, target.toolchain))),
        "language": started.description.language,
        "model": ", ".join(models) or "not named",
        "begun with": ", ".join(begun_with) or "nothing",
    }
    return named | {path: plain(value) for path, value in flatten(settings)}


def trait_words(name: str, value: str) -> str:
    """Return a trait in a few words: `branches 4`, `NVIDIA H200`."""
    bare = name.rpartition(".")[2].replace("_", " ")
    return value if name in ("device", "language", "toolchain") else f"{bare} {value}"


def compared(entrants: Sequence[Entrant]) -> Comparison:
    """Group runs of one task.

    Raises:
        ConfigError: they are of several tasks, or in too many groups to show.
    """
    first = entrants[0]
    for other in entrants[1:]:
        _refuse_other_task(first, other)
    names = list(dict.fromkeys(name for entrant in entrants for name in entrant.traits))
    differing = [name for name in names if len({entrant.traits.get(name, "") for entrant in entrants}) > 1]
    grouped: dict[tuple[str, ...], list[Entrant]] = {}
    for entrant in entrants:
        grouped.setdefault(tuple(entrant.traits.get(name, "") for name in differing), []).append(entrant)
    if len(grouped) > len(_NAMES):
        raise refusal(f"the runs have {len(grouped)} different settings", f"compare {len(_NAMES)} at most at once")
    groups = (
        Group(name=letter, told=", ".join(map(trait_words, differing, values)), entrants=tuple(members))
        for letter, (values, members) in zip(_NAMES, grouped.items(), strict=False)
    )
    common = {name: value for name, value in first.traits.items() if name not in differing}
    return Comparison(task=first.task.name, scored=first.run.scored, common=common, groups=tuple(groups))


def _refuse_other_task(first: Entrant, other: Entrant) -> None:
    if first.task.task_id == other.task.task_id:
        return
    differing = list(_differences(first.task, other.task)) or ["the task's content"]
    raise refusal(
        f"runs {first.run_id!r} and {other.run_id!r} are of different tasks: {'; '.join(differing)}",
        "only runs of one task can be compared; a task is also its sizes, its tolerance and its rules",
    )


def _differences(one: TaskSpec, other: TaskSpec) -> Iterator[str]:
    mine, theirs = (dict(flatten(msgspec.to_builtins(task))) for task in (one, other))
    for name in dict.fromkeys([*mine, *theirs]):
        left, right = plain(mine.get(name)), plain(theirs.get(name))
        if left != right:
            short = max(len(left), len(right)) <= _LONGEST and "\n" not in left + right
            yield f"{name} ({left} and {right})" if short else f"{name} (another one)"


def plain(value: object) -> str:
    """Return a setting as text, in the form of a configuration file."""
    if value is None or value in ((), []):
        return "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def spread_of(values: Sequence[float | None], *, missing: float = inf) -> Spread:
    """Summarise one figure over runs."""
    known = sorted(value for value in values if value is not None)
    middle = median([*known, *[missing] * (len(values) - len(known))]) if values else missing
    return Spread(
        runs=len(values),
        known=len(known),
        median=middle if isfinite(middle) else None,
        low=known[0] if known else None,
        high=known[-1] if known else None,
    )


def levels_of(comparison: Comparison) -> tuple[float, ...]:
    """Return the speedups to compare times for: the highest few that any run reached."""
    if comparison.scored:
        return ()
    runs = [run for group in comparison.groups for run in group.runs]
    return tuple(level for level in LEVELS if any(reached(run, level) for run in runs))[-_SHOWN_LEVELS:]


def rows_of(comparison: Comparison) -> Iterator[Row]:
    """Yield the table's rows: the result, then its costs, then failures."""
    groups = comparison.groups

    def row(title: str, cell: Callable[[Group], str]) -> Row:
        return Row(title=title, cells=tuple(map(cell, groups)))

    def places(title: str, place: Callable[[Run], Place | None]) -> Iterator[Row]:
        yield row(f"rounds {title}", lambda group: _over(group, lambda one: _on(place(one), "rounds"), "{:.0f}".format))
        yield row(f"time {title}", lambda group: _over(group, lambda one: _on(place(one), "seconds"), duration))
        if any(run.place.dollars for group in groups for run in group.runs):
            yield row(
                f"dollars {title}", lambda group: _over(group, lambda one: _on(place(one), "dollars"), "${:.4f}".format)
            )

    yield row("runs", lambda group: str(len(group.entrants)))
    yield row("seeds", lambda group: ", ".join(dict.fromkeys(str(entrant.seed) for entrant in group.entrants)))
    yield row("best score" if comparison.scored else "best speedup", _best_cell)
    yield row(
        "best found in round",
        lambda group: _over(group, _found_in_round, "{:.0f}".format),
    )
    yield from places("used", lambda run: run.place)
    yield from places("until the best counted", lambda run: run.step.at if run.step else None)
    for level in levels_of(comparison):
        yield from places(f"to {level:g}x", lambda run, level=level: reached(run, level))  # type: ignore[misc]
    yield row("model calls", lambda group: _over(group, lambda one: one.state.usage.calls, "{:,.0f}".format))
    yield row("tokens", lambda group: _over(group, lambda one: one.state.usage.tokens, "{:,.0f}".format))
    yield row("attempts", lambda group: str(sum(fates_of(group).values())))
    for fate in failures_of(groups):
        yield row(fate.replace("_", " "), lambda group, fate=fate: str(fates_of(group)[fate]))  # type: ignore[misc]


def fates_of(group: Group) -> Counter[str]:
    """Return the attempts of a group's runs, by status."""
    total: Counter[str] = Counter()
    for run in group.runs:
        total.update(run.fates)
    return total


def failures_of(groups: Sequence[Group]) -> list[str]:
    """Return the failure statuses that occurred, the most frequent first."""
    total = sum((fates_of(group) for group in groups), Counter[str]())
    return [fate for fate, _ in total.most_common() if fate not in _AS_IT_SHOULD]


def spread_words(spread: Spread, words: Callable[[float], str]) -> str:
    """Return a figure over runs as text: `24`, `24 (20 to 31)`; `-` if half of the runs or more never got there."""
    reached_by = f" ({spread.known} of {spread.runs})" if spread.known < spread.runs else ""
    if spread.median is None or spread.low is None or spread.high is None:
        return f"-{reached_by}" if spread.known else "-"
    middle, low, high = map(words, (spread.median, spread.low, spread.high))
    if reached_by:
        return middle + reached_by
    return middle if low == high else f"{middle} ({low} to {high})"


def value_words(value: float, *, scored: bool) -> str:
    """Return a speedup or a score for people."""
    return score_text(value) if scored else f"{value:.2f}x"


def best_words(run: Run) -> tuple[str, str]:
    """Return a run's best and its interval as text; `-` and nothing if there is none."""
    best = run.step
    if best is None:
        return "-", ""
    low, high = best.interval
    return value_words(best.value, scored=run.scored), "" if run.scored else f"[{low:.2f}, {high:.2f}]"


def _best_cell(group: Group) -> str:
    if len(group.entrants) == 1:
        return " ".join(filter(None, best_words(group.runs[0])))
    scored = group.runs[0].scored
    best = spread_of([run.step.value if run.step else None for run in group.runs], missing=-inf)
    return spread_words(best, lambda value: value_words(value, scored=scored))


def _over(group: Group, figure: Callable[[Run], float | None], words: Callable[[float], str]) -> str:
    return spread_words(spread_of([figure(run) for run in group.runs]), words)


def _on(place: Place | None, against: Against) -> float | None:
    return place.on(against) if place else None


def _found_in_round(run: Run) -> float | None:
    return run.step.mark.round if run.step else None
