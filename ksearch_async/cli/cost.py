"""`ksearch cost`: what runs have asked of models, compilers and the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number

from actors.bus.journal import read_journal
from ksearch_async.chronicle import Chronicle
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.cli.output import put, put_json, terminal_width
from ksearch_async.cli.tables import Column, table_lines
from ksearch_async.narrate import duration
from ksearch_async.refusals import refusal
from ksearch_async.runs import find_run, runs_dir_or_default
from messages.base import Usage
from messages.codec import Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, EditsProposed

Price: TypeAlias = Annotated[float | None, Parameter(validator=Number(gte=0))]

_COLUMNS = (
    Column("role"),
    Column("calls", number=True),
    Column("prompt", number=True),
    Column("cached", number=True, rank=1),
    Column("completion", number=True),
    Column("median call", number=True, rank=2),
    Column("longest", number=True, rank=3),
)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per million tokens."""

    prompt_usd: float
    cached_usd: float
    completion_usd: float

    def of(self, usage: Usage) -> float:
        """Return what the tokens cost."""
        fresh_tokens = usage.prompt_tokens - usage.cached_tokens
        return (
            fresh_tokens * self.prompt_usd
            + usage.cached_tokens * self.cached_usd
            + usage.completion_tokens * self.completion_usd
        ) / 1e6


class RoleCost(msgspec.Struct, frozen=True, kw_only=True):
    """What one role asked of models."""

    usage: Usage = Usage()
    latencies_s: tuple[float, ...] = ()
    """Of each call, as the caller saw it."""

    def plus(self, other: RoleCost) -> RoleCost:
        """Return the sum of both."""
        return RoleCost(usage=self.usage.plus(other.usage), latencies_s=self.latencies_s + other.latencies_s)


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a run cost. Answers that were lost before they were journalled are in no journal, and not here."""

    run: str
    planner: RoleCost = RoleCost()
    coder: RoleCost = RoleCost()
    wall_clock_s: float = 0.0
    """Over all sessions."""
    rounds: int = 0
    builds: int = 0
    """Compiler runs; a candidate that was built before is not built again."""
    build_cpu_s: float = 0.0
    evaluations: int = 0
    evaluation_s: float = 0.0
    """Wall-clock of evaluations, some of them side by side."""
    lease_s: float = 0.0
    """Of these, alone on the device."""

    @property
    def models(self) -> RoleCost:
        """Both roles together."""
        return self.planner.plus(self.coder)


def cost_command(
    *runs: str,
    prompt_usd: Price = None,
    cached_usd: Price = None,
    completion_usd: Price = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Say what runs have cost: model calls and tokens by role, wall-clock, builds and evaluations.

    Args:
        runs: Ids or folders of runs, or `latest`. [default: latest]
        prompt_usd: Dollars per million prompt tokens. With --completion-usd, calls are said in dollars too.
        cached_usd: Dollars per million prompt tokens that came from the endpoint's cache. [default: --prompt-usd]
        completion_usd: Dollars per million completion tokens.
        runs_dir: Where runs are looked for. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"runs": [{…}, …], "total": {…}}`.
    """
    prices = _prices(prompt_usd, cached_usd, completion_usd)
    folders = [find_run(run, runs_dir_or_default(runs_dir)) for run in runs or ("latest",)]
    unique = {folder.path: folder for folder in folders}
    costs = [cost_of(folder.run_id, read_journal(folder.journal)) for folder in unique.values()]
    total = _sum(costs)
    if as_json:
        put_json({"runs": [_as_object(cost, prices) for cost in costs], "total": _as_object(total, prices)})
        return exits.FOUND
    for cost in costs:
        put("\n".join([*_lines(cost, prices), *([""] if len(costs) > 1 else [])]))
    if len(costs) > 1:
        put("\n".join(_lines(total, prices)))
    return exits.FOUND


def _prices(prompt_usd: float | None, cached_usd: float | None, completion_usd: float | None) -> Prices | None:
    if prompt_usd is None and cached_usd is None and completion_usd is None:
        return None
    if prompt_usd is None or completion_usd is None:
        raise refusal("prices are given in part", "--prompt-usd and --completion-usd are needed, --cached-usd is not")
    cached_usd = prompt_usd if cached_usd is None else cached_usd
    return Prices(prompt_usd=prompt_usd, cached_usd=cached_usd, completion_usd=completion_usd)


def cost_of(run_id: str, records: Iterable[Record]) -> Cost:
    """Add up a run's records."""
    cost, chronicle = Cost(run=run_id), Chronicle()
    for record in records:
        chronicle.fold(record)
        cost = _plus(cost, record)
    return msgspec.structs.replace(cost, wall_clock_s=chronicle.elapsed_s, rounds=chronicle.state.rounds)


def _plus(cost: Cost, record: Record) -> Cost:
    match record.body:
        case EditsProposed(usage=usage, latency_s=latency_s):
            asked = RoleCost(usage=usage, latencies_s=(latency_s,))
            return msgspec.structs.replace(cost, planner=cost.planner.plus(asked))
        case CandidateWritten(usage=usage, latency_s=latency_s):
            asked = RoleCost(usage=usage, latencies_s=(latency_s,))
            return msgspec.structs.replace(cost, coder=cost.coder.plus(asked))
        case CandidateBuilt(cached=False, cpu_s=cpu_s):
            return msgspec.structs.replace(cost, builds=cost.builds + 1, build_cpu_s=cost.build_cpu_s + cpu_s)
        case CandidateEvaluated(wall_s=wall_s, lease_s=lease_s):
            return msgspec.structs.replace(
                cost,
                evaluations=cost.evaluations + 1,
                evaluation_s=cost.evaluation_s + wall_s,
                lease_s=cost.lease_s + lease_s,
            )
        case _:
            return cost


def _sum(costs: Iterable[Cost]) -> Cost:
    total = Cost(run="all")
    for cost in costs:
        total = Cost(
            run="all",
            planner=total.planner.plus(cost.planner),
            coder=total.coder.plus(cost.coder),
            wall_clock_s=total.wall_clock_s + cost.wall_clock_s,
            rounds=total.rounds + cost.rounds,
            builds=total.builds + cost.builds,
            build_cpu_s=total.build_cpu_s + cost.build_cpu_s,
            evaluations=total.evaluations + cost.evaluations,
            evaluation_s=total.evaluation_s + cost.evaluation_s,
            lease_s=total.lease_s + cost.lease_s,
        )
    return total


def _lines(cost: Cost, prices: Prices | None) -> Iterator[str]:
    yield f"run        {cost.run}"
    yield f"rounds     {cost.rounds} in {duration(cost.wall_clock_s)}"
    yield f"builds     {cost.builds}, {duration(cost.build_cpu_s)} of CPU"
    alone = f"{duration(cost.lease_s)} of that alone on the device"
    yield f"evaluated  {cost.evaluations} in {duration(cost.evaluation_s)}, {alone}"
    yield ""
    roles = {"planner": cost.planner, "coder": cost.coder, "both": cost.models}
    rows = [_cells(role, asked) for role, asked in roles.items()]
    if prices is None:
        yield from table_lines(_COLUMNS, rows, width=terminal_width())
        return
    priced = [[*row, f"${prices.of(asked.usage):,.4f}"] for row, asked in zip(rows, roles.values(), strict=True)]
    yield from table_lines((*_COLUMNS, Column("dollars", number=True)), priced, width=terminal_width())


def _cells(role: str, cost: RoleCost) -> list[str]:
    usage = cost.usage
    share = f" ({100 * usage.cached_tokens / usage.prompt_tokens:.0f} %)" if usage.prompt_tokens else ""
    return [
        role,
        f"{usage.calls:,}",
        f"{usage.prompt_tokens:,}",
        f"{usage.cached_tokens:,}{share}",
        f"{usage.completion_tokens:,}",
        duration(median(cost.latencies_s)) if cost.latencies_s else "-",
        duration(max(cost.latencies_s)) if cost.latencies_s else "-",
    ]


def _as_object(cost: Cost, prices: Prices | None) -> dict[str, object]:
    fields: dict[str, object] = msgspec.structs.asdict(cost)
    roles = {"planner": cost.planner, "coder": cost.coder, "models": cost.models}
    return fields | {role: _role_object(asked, prices) for role, asked in roles.items()}


def _role_object(cost: RoleCost, prices: Prices | None) -> dict[str, object]:
    latencies = cost.latencies_s
    usage: dict[str, object] = msgspec.structs.asdict(cost.usage)
    return usage | {
        "latency_s": sum(latencies),
        "median_latency_s": median(latencies) if latencies else None,
        "longest_latency_s": max(latencies, default=None),
        "cost_usd": prices.of(cost.usage) if prices else None,
    }
