"""The page: one HTML file that needs no network and no script, and says so to the browser that shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from ksearch_async import __version__
from ksearch_async.comparing import Comparison, best_words, compared, rows_of
from ksearch_async.phrases import duration
from ksearch_async.report.data import Series
from ksearch_async.report.dossier import Dossier
from ksearch_async.report.gallery import FIGURES, OF_ALL_RUNS, OF_EACH_RUN, pictures_of
from ksearch_async.report.inlined import inlined
from ksearch_async.report.markup import Child, Markup, joined, tag, trusted
from ksearch_async.report.sections import SECTIONS, summary
from ksearch_async.report.tables import definitions, table

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def page_of(dossiers: Sequence[Dossier]) -> str:
    """Return the page about runs of one task.

    Raises:
        ConfigError: they are of several.
    """
    comparison, numbers = compared([dossier.entrant for dossier in dossiers]), count(1)
    if len(dossiers) == 1:
        head = dossiers[0].entrant.trace.head
        return _document(f"{head.task} on {head.device}", _alone(dossiers[0], comparison.series, numbers))
    entrants = [entrant for group in comparison.groups for entrant in group.entrants]
    ordered = [next(dossier for dossier in dossiers if dossier.entrant is entrant) for entrant in entrants]
    parts = [_compared(comparison, numbers)]
    for place, dossier in enumerate(ordered, start=1):
        parts.append(_among_others(dossier, place, numbers))
    return _document(f"{comparison.task}: {len(dossiers)} runs", *parts)


def _document(title: str, *parts: Iterator[Markup]) -> str:
    """Return the whole file."""
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
    """Yield the page of one run."""
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
    """Yield what a page of several runs says of one of them."""
    run_id = dossier.entrant.run_id
    yield tag("h2", run_id, id=f"run{place}")
    yield from summary(dossier)
    for picture in pictures_of([Series(label=run_id, traces=(dossier.entrant.trace,))], OF_EACH_RUN):
        yield inlined(picture, next(numbers))
    for name, title, section in SECTIONS:
        yield tag("h3", title, id=f"run{place}-{name}")
        yield from section(dossier)


def _compared(comparison: Comparison, numbers: Iterator[int]) -> Iterator[Markup]:
    """Yield the runs beside each other."""
    yield tag("p", f"What all have in common: {comparison.brief}.")
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
        totals = entrant.trace.totals
        link = tag("a", entrant.run_id, href=f"#run{place}")
        rounds, ended_by = str(totals.rounds), totals.stopped_by or totals.standing
        best, interval = best_words(entrant.trace)
        yield [link, group.name, str(entrant.seed), best, interval, rounds, duration(totals.elapsed_s), ended_by]
