"""The report: one HTML page about runs, without scripts and network access."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import TypeAlias

import msgspec

from actors.planner.core.state import in_order
from ksearch_async import __version__
from ksearch_async.runs.candidates import Version, Versions, diff_lines
from ksearch_async.runs.folder import RunFolder, read_run
from ksearch_async.runs.run import Best, BestScore, Run, Spend, repeats_known
from ksearch_async.settings.options import SETTINGS
from ksearch_async.settings.run_config import ModelSettings, RunConfig, flatten, load_config
from ksearch_async.views.compare import Comparison, Entrant, best_words, compared, entrant_of, plain, rows_of
from ksearch_async.views.lines import (
    confirmations_line,
    expectations_line,
    fates_line,
    faults_line,
    state_line,
    workers_line,
)
from ksearch_async.views.report.data import Series, baseline_of
from ksearch_async.views.report.gallery import FIGURES, OF_ALL_RUNS, OF_EACH_RUN, inlined, pictures_of
from ksearch_async.views.report.markup import Child, Markup, definitions, joined, table, tag, trusted
from ksearch_async.views.text import (
    TITLES,
    WORKLOAD_TITLES,
    counted,
    duration,
    headline,
    kernel_rows,
    left_out,
    workload_cells,
)
from ksearch_async.views.tree_layout import path_to_best
from messages.events import RunStarted
from messages.facts import AttemptFinished
from messages.verdicts import GOOD_FATES, Measured, Scored, score_text, worth_text

_NOT_OF_THE_SEARCH = ("runs_dir", "effort", "nats", "metrics.", "sync", "weight", "tier", "workers.here")
"""Settings of a run's place and process, which do not affect the search."""


class Dossier(msgspec.Struct, frozen=True, kw_only=True):
    """A run and the data for its report."""

    entrant: Entrant
    started: RunStarted
    run: Run
    """Run, read with its texts."""
    in_use: bool
    """True if a process is working on it."""
    best: Best | BestScore | None
    kernel: Version | None
    base: Version | None
    """Version that the best kernel was derived from; None: the reference."""
    commands: tuple[str, ...]
    """Commands that repeat the run."""
    unsaid: tuple[str, ...]
    """Settings without a flag, which the commands cannot express."""
    has_config: bool
    """True if the commands are derived from the run's configuration; else from its journal, which has no endpoints and
    paths."""


def dossier_of(folder: RunFolder) -> Dossier:
    """Collect the data for a run's report."""
    run = read_run(folder, with_texts=True)
    entrant, started = entrant_of(folder.run_id, run), run.started
    assert started is not None, "a run that has begun has its first event"  # noqa: S101 - `entrant_of` has looked
    best, has_config = run.best(""), folder.config.exists()
    again = (shlex.join(["ksearch", command, folder.run_id]) for command in ("replay", "eval"))
    base, kernel = Versions(run).pair(None, None) if best is not None else (None, None)
    config = load_config(folder.config) if has_config else _config_of(started, run)
    return Dossier(
        entrant=entrant,
        started=started,
        run=run,
        in_use=folder.in_use(),
        best=best,
        kernel=kernel,
        base=base,
        commands=(shlex.join(["ksearch", "run", config.task, *_flags(config)]), *again),
        unsaid=tuple(_unsaid(config)),
        has_config=has_config,
    )


def _config_of(started: RunStarted, run: Run) -> RunConfig:
    head = run.head
    return RunConfig(
        task=started.task.name,
        language=started.description.language,
        seed=started.seed,
        search=run.settings,
        model=ModelSettings(name=head.models[0] if head and head.models else None),
    )


def _unusual(config: RunConfig) -> dict[str, object]:
    usual = dict(flatten(msgspec.to_builtins(RunConfig(task=config.task))))
    return {path: value for path, value in flatten(msgspec.to_builtins(config)) if value != usual.get(path)}


def _flags(config: RunConfig) -> Iterator[str]:
    ours = _unusual(config)
    for setting in SETTINGS:
        value = ours.get(setting.path)
        if setting.path.startswith(_NOT_OF_THE_SEARCH) or value is None:
            continue
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{setting.flag}"
        else:
            yield from (f"--{setting.flag}", str(value))


def _unsaid(config: RunConfig) -> Iterator[str]:
    flags = {setting.path for setting in SETTINGS}
    yield from (f"{path} = {value}" for path, value in _unusual(config).items() if path not in flags)


Section: TypeAlias = Callable[[Dossier], Iterator[Markup]]

_MOST_LINES, _LONGEST_LINE = 4000, 2000
"""Longest source or diff on the page, in lines and in characters per line; the file has all of it."""
_DIFF = {"+++": "file", "---": "file", "@@": "place", "+": "added", "-": "removed"}
"""CSS class of a line by its first characters, the longest first."""


def result_words(dossier: Dossier) -> str:
    """Return the result of the run in a sentence."""
    best = dossier.best
    if best is None:
        return "No candidate was correct and timed, or got a score."
    if isinstance(best, BestScore):
        initial = "" if best.initial_score is None else f"; the initial program has {score_text(best.initial_score)}"
        return f"The best program scores {score_text(best.score)}{initial}."
    low, high = best.speedup_interval
    against = f" against {best.reference_latency_us:.1f} us" if best.reference_latency_us is not None else ""
    slower = "" if best.faster else " That is not faster than the reference."
    return (
        f"The best kernel is {best.speedup_vs_reference:.2f}x as fast as the reference (95 % interval {low:.2f} to "
        f"{high:.2f}): {best.latency_us:.1f} us{against}{best.roofline_words}.{slower}"
    )


def summary(dossier: Dossier) -> Iterator[Markup]:
    """Task, end and effort of the run."""
    run, started, target = dossier.run, dossier.started, dossier.started.target
    yield tag("p", result_words(dossier), class_="result")
    beside = baseline_of(run)
    baseline = f"{beside[0]}: {beside[1]:.2f}x the reference, beside the best" if beside else ""
    rounds, limit = run.state.rounds, run.settings.budget.max_rounds
    yield definitions(
        [
            ("run", started.run_id),
            ("task", f"{started.task.name} ({started.task.task_id})"),
            ("device", target.device),
            ("written in", started.description.language),
            ("models", dossier.entrant.traits["model"]),
            ("baseline", baseline),
            ("found by", " > ".join(dossier.best.found_by) if dossier.best else ""),
            ("state", state_line(run, in_use=dossier.in_use)),
            ("rounds", f"{rounds} of {limit} in {duration(run.place.seconds)}"),
            ("attempts", fates_line(run)),
            ("confirmed", confirmations_line(run)),
            ("expected", expectations_line(run.state)),
            ("processes", workers_line(run)),
            ("endpoint", faults_line(run)),
            ("begun", f"{run.started_at[:19].replace('T', ' ')} UTC"),
        ]
    )


def kernel(dossier: Dossier) -> Iterator[Markup]:
    """The best kernel's files, and their changes from the version that they were derived from."""
    best = dossier.kernel
    if best is None:
        yield tag("p", "There is none.")
        return
    yield tag("p", f"Candidate {best.candidate_id}: {best.said}.", class_="note")
    for file in best.candidate.files:
        yield tag("p", tag("code", file.path))
        yield tag("pre", tag("code", "\n".join(_bounded(file.text.splitlines()))))
    if dossier.base is not None and dossier.base.candidate_id != best.candidate_id:
        yield tag("p", f"Against what it was started from, candidate {dossier.base.candidate_id}: {dossier.base.said}.")
        yield tag("pre", tag("code", _coloured(dossier.base, best)))


def _coloured(older: Version, newer: Version) -> Iterator[Child]:
    for line in _bounded(list(diff_lines(older, newer))):
        kind = next((kind for start, kind in _DIFF.items() if line.startswith(start)), "")
        yield tag("span", line, class_=kind) if kind else line
        yield "\n"


def _bounded(lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_MOST_LINES]:
        rest = len(line) - _LONGEST_LINE
        yield line if rest <= 0 else f"{line[:_LONGEST_LINE]}… ({rest:,} more characters)"
    if len(lines) > _MOST_LINES:
        yield f"… ({len(lines) - _MOST_LINES:,} more lines)"


def measurement(dossier: Dossier) -> Iterator[Markup]:
    """How the best kernel was checked, timed and isolated, and how much confirmations moved other speedups."""
    done = dossier.run.evaluated(dossier.best.candidate_id) if dossier.best else None
    if done is None:
        yield tag("p", "Nothing was measured that counts.")
        return
    verdict = done.verdict
    pairs: list[tuple[str, Child]] = [
        ("purpose", "a second, confirming measurement" if done.purpose == "confirm" else "its only measurement"),
        ("device", f"{done.device} {done.unit}".strip()),
        ("isolation", ", ".join(done.isolation) or "not recorded"),
        ("took", f"{done.wall_s:.1f} s, {done.lease_s:.1f} s of it alone on the device"),
    ]
    if isinstance(verdict, Measured):
        yield from _timing(verdict, dossier)
        pairs.extend(_checks(verdict))
    elif isinstance(verdict, Scored):
        pairs.extend((f"metric {name}", str(value)) for name, value in verdict.metrics.items())
        pairs.extend(("note", note) for note in verdict.notes)
    yield definitions(pairs)
    if isinstance(verdict, Measured) and verdict.workloads:
        yield table(WORKLOAD_TITLES, map(workload_cells, verdict.workloads), numbers=range(1, 6))
    if isinstance(verdict, Measured):
        yield from _profile(verdict)


def _profile(verdict: Measured) -> Iterator[Markup]:
    for one in verdict.profile:
        yield tag("p", f"GPU work in a call: {headline(one)}.")
        yield table(TITLES, kernel_rows(one), numbers=range(len(TITLES) - 2))
        if rest := left_out(one):
            yield tag("p", rest, class_="note")
    if verdict.profile:
        yield tag("p", "The kernel's own process recorded that; nothing above rests on it.", class_="note")


def _timing(verdict: Measured, dossier: Dossier) -> Iterator[Markup]:
    best = dossier.best
    if not isinstance(best, Best) or verdict.speedup_interval is None:
        return
    turns = f", {counted(verdict.pairs, 'pair', 'pairs')} in all" if verdict.pairs else ""
    yield tag(
        "p",
        f"Candidate and reference were called by turns{turns}. The speedup is the median over blocks of two pairs, of "
        "the reference's latency over the candidate's; the interval is the median's, at 95 %. Search and "
        "comparisons use its lower end."
        + (" Over several workloads these are geometric means." if verdict.workloads else ""),
    )
    rows = [
        ["reference", _us(verdict.reference_latency_us), "1.00x", ""],
        [
            "best kernel",
            _us(verdict.latency_us),
            f"{verdict.speedup_vs_reference:.3f}x",
            f"[{verdict.speedup_interval.low:.3f}, {verdict.speedup_interval.high:.3f}]",
        ],
    ]
    if verdict.baseline and verdict.speedup_vs_baseline is not None and verdict.baseline_interval is not None:
        interval = f"[{verdict.baseline_interval.low:.3f}, {verdict.baseline_interval.high:.3f}]"
        rows.insert(1, [verdict.baseline, _us(verdict.baseline_latency_us), "", ""])
        rows.append([f"best kernel over {verdict.baseline}", "", f"{verdict.speedup_vs_baseline:.3f}x", interval])
    yield table(["program", "median latency", "speedup", "95 % interval"], rows, numbers=(1, 2, 3))
    if best.screen_speedup is not None:
        yield tag("p", f"Its first measurement had said {best.screen_speedup:.2f}x.", class_="note")


def _checks(verdict: Measured) -> Iterator[tuple[str, Child]]:
    worst = max(verdict.checks, key=lambda check: check.error_ratio, default=None)
    if worst is not None:
        calls = counted(len(verdict.checks), "call", "calls")
        families = ", ".join(dict.fromkeys(check.family for check in verdict.checks))
        yield "checked", f"{calls} on fresh inputs, expected values in {verdict.reference_dtype}; inputs: {families}"
        yield "largest error", f"{worst.error_ratio:.3g} of the tolerance ({worst.family})"
    yield (
        "latency",
        "of the device's work, launches hidden" if verdict.measure == "device" else "of a call as users make it",
    )
    if verdict.deterministic is not None:
        yield "same bits", "twice on the same inputs" if verdict.deterministic else "not twice on the same inputs"
    yield "flags", ", ".join(verdict.flags)
    yield from (("note", note) for note in verdict.notes)


def _us(latency_us: float | None) -> str:
    return "" if latency_us is None else f"{latency_us:.1f} us"


def actions(dossier: Dossier) -> Iterator[Markup]:
    """The tree as a table: every action with its result."""
    search = dossier.run.state
    way = set(path_to_best(search))
    rows: list[list[Child]] = []
    for node in in_order(search.nodes):
        if not node.parent_id:
            continue
        best = node.best
        worth = worth_text(best.credit, best.speedup, is_least=best.is_least) if best else ""
        failed = ", ".join(f"{count} {fate.replace('_', ' ')}" for fate, count in node.fates if fate not in GOOD_FATES)
        state = f"{node.state.replace('_', ' ')}{', forbidden' if node.barred else ''}"
        title = tag("b", node.title) if node.node_id in way else node.title
        rows.append([node.node_id, node.parent_id, title, state, worth, str(node.rounds), failed])
    yield table(["action", "below", "idea", "state", "best", "rounds", "other outcomes"], rows, numbers=(4, 5))
    if way:
        yield tag("p", "Those that the best kernel was built on are bold.", class_="note")


def attempts(dossier: Dossier) -> Iterator[Markup]:
    """Every attempt, in the order of their outcomes."""
    run = dossier.run
    best_id = run.state.incumbent.candidate_id if run.state.incumbent else ""
    confirmed = {fact.candidate_id: fact for fact in run.confirmations}
    rows: list[list[Child]] = []
    for tried in run.tried:
        attempt, candidate_id = tried.fact, tried.fact.candidate_id or ""
        is_best = bool(best_id) and candidate_id == best_id
        outcome = attempt.outcome.removeprefix(f"{attempt.fate}: ")
        again = confirmed.get(candidate_id)
        if again is not None and attempt.round:
            said = again.outcome.removeprefix("measured: ")
            confirmed_words = f"{'confirmed' if again.fate == 'measured' else 'not confirmed'}: {said}"
            outcome = f"screening said {outcome}; {confirmed_words}"
        words = "repeated" if repeats_known(attempt) else attempt.fate.replace("_", " ")
        fate = tag("span", words, class_=_fate_kind(attempt))
        rows.append(
            [
                str(attempt.round or ""),
                duration(tried.at.seconds),
                tried.node_id,
                fate,
                tag("b", f"{outcome} (the best)") if is_best else outcome,
                tag("code", candidate_id[:8]),
            ]
        )
    yield table(["round", "after", "action", "fate", "outcome", "candidate"], rows, numbers=(0, 1))


def _fate_kind(attempt: AttemptFinished) -> str:
    if repeats_known(attempt) or attempt.fate in ("declined", "outpaced", "unstable", "lost"):
        return "idle"
    return "good" if attempt.fate in GOOD_FATES else "bad"


def costs(dossier: Dossier) -> Iterator[Markup]:
    """Cost of the models."""
    spending = dossier.run.spending()
    titles = ["role", "model", "calls", "prompt tokens", "of them cached", "completion tokens", "dollars"]
    rows = [[role, model or "-", *_spend(spend)] for (role, model), spend in spending.by_model.items()]
    total = spending.of_role("planner").plus(spending.of_role("coder"))
    yield table(titles, [*rows, ["both", "", *_spend(total)]], numbers=range(2, 7))
    if total.known_usd is None:
        yield tag("p", "Not all prices are known: tokens only.", class_="note")


def _spend(spend: Spend) -> list[str]:
    usage = spend.usage
    dollars = "-" if spend.known_usd is None else f"${spend.known_usd:.4f}"
    tokens = (usage.calls, usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
    return [*(f"{number:,}" for number in tokens), dollars]


def environment(dossier: Dossier) -> Iterator[Markup]:
    """Device, toolchain and all settings, so that no default of another release matters."""
    target, settings = dossier.started.target, dossier.run.settings
    cpu = msgspec.to_builtins(target.cpu) if target.cpu else {}
    told = {"device": target.device, "architecture": target.arch, "march": target.march, "toolchain": target.toolchain}
    told |= {f"cpu {name}": str(value) for name, value in cpu.items() if value}
    yield definitions(told.items())
    task = dossier.started.task
    values: dict[str, object] = {"seed": dossier.started.seed, "tolerance": task.tolerance.profile}
    values |= {f"rules.{name}": value for name, value in flatten(msgspec.to_builtins(task.rules))}
    values |= dict(flatten(msgspec.to_builtins(settings)))
    yield table(["setting", "value"], [[tag("code", name), plain(value)] for name, value in values.items()])


def reproduction(dossier: Dossier) -> Iterator[Markup]:
    """Commands that repeat the run."""
    yield tag("p", "The same search again; what it finds depends on what it measures and on what the models answer:")
    yield tag("pre", tag("code", dossier.commands[0]), class_="command")
    if dossier.unsaid:
        yield tag("p", "with this in its configuration file (-c):")
        yield tag("pre", tag("code", "\n".join(dossier.unsaid)), class_="command")
    if not dossier.has_config:
        note = "Made of the journal alone, which knows no endpoints and no paths."
        yield tag("p", note, class_="note")
    yield tag(
        "p", "Its decisions again, from its journal, without a model and without a device; and the best once more:"
    )
    yield tag("pre", tag("code", "\n".join(dossier.commands[1:])), class_="command")


SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("kernel", "The best kernel", kernel),
    ("measurement", "How it was measured", measurement),
    ("actions", "Actions", actions),
    ("attempts", "Attempts", attempts),
    ("costs", "Costs", costs),
    ("environment", "Environment and settings", environment),
    ("reproduction", "To reproduce", reproduction),
)
"""Identifier, title and function of each section, in the order of the page; summary and figures come before them."""


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page_of(dossiers: Sequence[Dossier]) -> str:
    """Return the page about runs of one task."""
    comparison, numbers = compared([dossier.entrant for dossier in dossiers]), count(1)
    if len(dossiers) == 1:
        started = dossiers[0].started
        return _document(
            f"{started.task.name} on {started.target.device}", _alone(dossiers[0], comparison.series, numbers)
        )
    entrants = [entrant for group in comparison.groups for entrant in group.entrants]
    ordered = [next(dossier for dossier in dossiers if dossier.entrant is entrant) for entrant in entrants]
    parts = [_compared(comparison, numbers)]
    for place, dossier in enumerate(ordered, start=1):
        parts.append(_among_others(dossier, place, numbers))
    return _document(f"{comparison.task}: {len(dossiers)} runs", *parts)


def _document(title: str, *parts: Iterator[Markup]) -> str:
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", attributes={"http-equiv": "Content-Security-Policy", "content": _POLICY}),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", trusted(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))),
    )
    told = f"Written by ksearch-async {__version__} from the journal, with ksearch report."
    body = tag("body", tag("h1", title), *map(list, parts), tag("footer", told))
    return f"<!doctype html>\n{tag('html', head, body, lang='en').html}\n"


def _alone(dossier: Dossier, series: Sequence[Series], numbers: Iterator[int]) -> Iterator[Markup]:
    yield from summary(dossier)
    anchors = [("figures", "Figures"), *((name, title) for name, title, _ in SECTIONS)]
    yield tag("nav", [joined(tag("a", title, href=f"#{name}"), " ") for name, title in anchors])
    yield tag("h2", "Figures", id="figures")
    for picture in pictures_of(series, FIGURES):
        if picture.name != "best-so-far-rounds":  # the search trace has that line
            yield inlined(picture, next(numbers))
    for name, title, section in SECTIONS:
        yield tag("h2", title, id=name)
        yield from section(dossier)


def _among_others(dossier: Dossier, place: int, numbers: Iterator[int]) -> Iterator[Markup]:
    run_id = dossier.entrant.run_id
    yield tag("h2", run_id, id=f"run{place}")
    yield from summary(dossier)
    for picture in pictures_of([Series(label=run_id, runs=(dossier.run,))], OF_EACH_RUN):
        yield inlined(picture, next(numbers))
    for name, title, section in SECTIONS:
        yield tag("h3", title, id=f"run{place}-{name}")
        yield from section(dossier)


def _compared(comparison: Comparison, numbers: Iterator[int]) -> Iterator[Markup]:
    yield tag("p", f"In common: {comparison.brief}.")
    several = len(comparison.groups) > 1
    if several:
        yield definitions((f"group {group.name}", group.told) for group in comparison.groups)
    names = [group.name for group in comparison.groups] if several else ["all"]
    rows = [[row.title, *row.cells] for row in rows_of(comparison)]
    yield table(["", *names], rows, numbers=range(1, len(names) + 1))
    yield tag(
        "p",
        "Of several runs a cell is the median, with the range in brackets; (2 of 3): one never got there. A speedup is "
        "reached when a best kernel's whole 95 % interval lies there or above.",
        class_="note",
    )
    titles = ["run", "group", "seed", "best", "95 % interval", "rounds", "time", "state"]
    yield table(titles, _runs(comparison), numbers=(2, 3, 4, 5, 6))
    for picture in pictures_of(comparison.series, OF_ALL_RUNS):
        yield inlined(picture, next(numbers))


def _runs(comparison: Comparison) -> Iterator[Sequence[Child]]:
    pairs = [(group, entrant) for group in comparison.groups for entrant in group.entrants]
    for place, (group, entrant) in enumerate(pairs, start=1):
        run = entrant.run
        link = tag("a", entrant.run_id, href=f"#run{place}")
        rounds, ended_by = str(run.state.rounds), run.state.stopped_by or run.standing
        best, interval = best_words(run)
        yield [link, group.name, str(entrant.seed), best, interval, rounds, duration(run.place.seconds), ended_by]
