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
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.errors import refusal
from ksearch_async.runs.folder import find_run
from ksearch_async.runs.run import PriceOf, Run, Spend, Spending
from ksearch_async.settings.prices import read_prices
from ksearch_async.settings.run_config import runs_dir_or_default
from ksearch_async.views.terminal import put_json, put_lines, terminal_width
from ksearch_async.views.text import Column, duration, table_lines
from messages.base import Usage
from messages.codec import Record
from messages.events import CandidateBuilt, CandidateEvaluated, CandidateWritten, EditsProposed
from messages.models import Price
from messages.verdicts import Measured, Outpaced

PriceFlag: TypeAlias = Annotated[float | None, Parameter(validator=Number(gte=0))]

_COLUMNS = (
    Column("role"),
    Column("calls", number=True),
    Column("prompt", number=True),
    Column("cached", number=True, rank=1),
    Column("completion", number=True),
    Column("median call", number=True, rank=2),
    Column("longest", number=True, rank=3),
    Column("dollars", number=True),
)
_SPENT = (
    Column("calls", number=True),
    Column("prompt", number=True),
    Column("cached", number=True, rank=1),
    Column("completion", number=True),
    Column("reasoning", number=True, rank=2),
    Column("dollars", number=True),
)
_SHOWN_NODES = 10
_ADDED = (
    *("wall_clock_s", "rounds", "builds", "build_cpu_s", "evaluations", "evaluation_s", "lease_s"),
    *("confirmations", "confirm_lease_s", "outpaced", "outpaced_lease_s", "timed", "timed_lease_s"),
)
"""Figures that are summed over records and over runs."""


class RoleCost(msgspec.Struct, frozen=True, kw_only=True):
    """Model calls of one role."""

    usage: Usage = Usage()
    latencies_s: tuple[float, ...] = ()
    """Latency of each call, as seen by the caller."""
    cost_usd: float | None = 0.0
    """Null if a price is not known."""

    def plus(self, other: RoleCost) -> RoleCost:
        """Return the sum of both."""
        known = self.cost_usd is not None and other.cost_usd is not None
        return RoleCost(
            usage=self.usage.plus(other.usage),
            latencies_s=self.latencies_s + other.latencies_s,
            cost_usd=(self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None,
        )


NOTHING = RoleCost()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Costs of a run. Answers that were lost before they were journalled are in no journal, and not here."""

    run: str
    planner: RoleCost = NOTHING
    coder: RoleCost = NOTHING
    wall_clock_s: float = 0.0
    """Of all sessions together."""
    rounds: int = 0
    builds: int = 0
    """Compiler runs; a candidate that was built before is not built again."""
    build_cpu_s: float = 0.0
    evaluations: int = 0
    evaluation_s: float = 0.0
    """Wall-clock seconds of evaluations, summed; some run at the same time."""
    lease_s: float = 0.0
    """The part of them in which an evaluation had the device to itself."""
    confirmations: int = 0
    """Evaluations that measured a candidate a second time."""
    confirm_lease_s: float = 0.0
    """Seconds in which they had the device to themselves."""
    outpaced: int = 0
    """Screenings that were stopped early, since the candidate was clearly too slow."""
    outpaced_lease_s: float = 0.0
    timed: int = 0
    """Screenings that were timed to their end."""
    timed_lease_s: float = 0.0
    spending: Spending = Spending()

    @property
    def spared_s(self) -> float:
        """Estimate of the device time that stopping slow candidates early has saved."""
        if not self.timed:
            return 0.0
        return max(0.0, self.outpaced * self.timed_lease_s / self.timed - self.outpaced_lease_s)

    @property
    def models(self) -> RoleCost:
        """Both roles together."""
        return self.planner.plus(self.coder)


def cost_command(
    *runs: str,
    prompt_usd: PriceFlag = None,
    cached_usd: PriceFlag = None,
    completion_usd: PriceFlag = None,
    prices: Path | None = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Show the costs of runs: calls, tokens and money by role, model and action; wall-clock, builds, evaluations.

    Args:
        runs: Ids or folders of runs, or `latest`. [default: latest]
        prompt_usd: Dollars per million prompt tokens, for all models, instead of the prices saved with a run.
        cached_usd: Dollars per million prompt tokens that the endpoint had in its cache. [default: --prompt-usd]
        completion_usd: Dollars per million completion tokens.
        prices: A file of prices to use instead, as for `ksearch run --prices`.
        runs_dir: Folder of the runs. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object: `{"runs": [{…}, …], "total": {…}}`.
    """
    price_of = _price_of(prompt_usd, cached_usd, completion_usd, prices)
    folders = [find_run(run, runs_dir_or_default(runs_dir)) for run in runs or ("latest",)]
    unique = {folder.path: folder for folder in folders}
    costs = [cost_of(folder.run_id, read_journal(folder.journal), price_of) for folder in unique.values()]
    total = _sum(costs)
    if as_json:
        put_json({"runs": [_as_object(cost) for cost in costs], "total": _as_object(total)})
        return exits.FOUND
    for cost in costs:
        put_lines([*_lines(cost), *([""] if len(costs) > 1 else [])])
    if len(costs) > 1:
        put_lines(_lines(total))
    return exits.FOUND


def _price_of(
    prompt_usd: float | None, cached_usd: float | None, completion_usd: float | None, table: Path | None
) -> PriceOf | None:
    if prompt_usd is None and cached_usd is None and completion_usd is None:
        if table is None:
            return None
        prices = read_prices(str(table))
        return lambda model: prices.of(model, None)
    if table is not None:
        raise refusal("prices are given twice", "leave out --prices, or --prompt-usd and its like")
    if prompt_usd is None or completion_usd is None:
        raise refusal("prices are given in part", "--prompt-usd and --completion-usd are needed, --cached-usd is not")
    cached_usd = prompt_usd if cached_usd is None else cached_usd
    price = Price(input_usd=prompt_usd, cached_usd=cached_usd, output_usd=completion_usd)
    return lambda _model: price


def cost_of(run_id: str, records: Iterable[Record], price_of: PriceOf | None = None) -> Cost:
    """Add up a run's records; `price_of` gives prices to go by instead of the run's own."""
    cost, run = Cost(run=run_id), Run()
    for record in records:
        run.fold(record)
        cost = _plus(cost, record)
    spending = run.spending(price_of)
    planner, coder = (spending.of_role(role).known_usd for role in ("planner", "coder"))
    return msgspec.structs.replace(
        cost,
        spending=spending,
        wall_clock_s=run.elapsed_s,
        rounds=run.state.rounds,
        planner=msgspec.structs.replace(cost.planner, cost_usd=planner),
        coder=msgspec.structs.replace(cost.coder, cost_usd=coder),
    )


def _plus(cost: Cost, record: Record) -> Cost:
    match record.body:
        case EditsProposed(usage=usage, latency_s=latency_s):
            return _with(cost, planner=RoleCost(usage=usage, latencies_s=(latency_s,)))
        case CandidateWritten(usage=usage, latency_s=latency_s) if usage.calls:
            return _with(cost, coder=RoleCost(usage=usage, latencies_s=(latency_s,)))
        case CandidateBuilt(cached=False, cpu_s=cpu_s):
            return _with(cost, builds=1, build_cpu_s=cpu_s)
        case CandidateEvaluated(verdict=verdict, wall_s=wall_s, lease_s=lease_s, purpose=purpose):
            cost = _with(cost, evaluations=1, evaluation_s=wall_s, lease_s=lease_s)
            if purpose == "confirm":
                return _with(cost, confirmations=1, confirm_lease_s=lease_s)
            if isinstance(verdict, Outpaced):
                return _with(cost, outpaced=1, outpaced_lease_s=lease_s)
            if isinstance(verdict, Measured) and verdict.timed:
                return _with(cost, timed=1, timed_lease_s=lease_s)
    return cost


def _with(cost: Cost, *, planner: RoleCost = NOTHING, coder: RoleCost = NOTHING, **more: float) -> Cost:
    sums = {name: getattr(cost, name) + amount for name, amount in more.items()}
    return msgspec.structs.replace(cost, planner=cost.planner.plus(planner), coder=cost.coder.plus(coder), **sums)


def _sum(costs: Iterable[Cost]) -> Cost:
    total = Cost(run="all")
    for cost in costs:
        total = _with(total, **{name: getattr(cost, name) for name in _ADDED}, planner=cost.planner, coder=cost.coder)
    return total


def _lines(cost: Cost) -> Iterator[str]:
    yield f"run        {cost.run}"
    yield f"rounds     {cost.rounds} in {duration(cost.wall_clock_s)}"
    yield f"builds     {cost.builds}, {duration(cost.build_cpu_s)} of CPU"
    alone = f"{duration(cost.lease_s)} of that alone on the device"
    yield f"evaluated  {cost.evaluations} in {duration(cost.evaluation_s)}, {alone}"
    if cost.confirmations:
        yield f"confirmed  {cost.confirmations} of them, {duration(cost.confirm_lease_s)} alone on the device"
    if cost.outpaced:
        spared = f"which spared about {duration(cost.spared_s)} on the device"
        yield f"stopped    {cost.outpaced} of them early, {spared}"
    yield ""
    roles = {"planner": cost.planner, "coder": cost.coder, "both": cost.models}
    yield from table_lines(_COLUMNS, [_cells(role, asked) for role, asked in roles.items()], width=terminal_width())
    if cost.spending.by_model:
        yield ""
        rows = [_spend_cells((role, model or "-"), spend) for (role, model), spend in cost.spending.by_model.items()]
        yield from table_lines((Column("role"), Column("model"), *_SPENT), rows, width=terminal_width())
    if cost.spending.by_node:
        yield ""
        yield from table_lines((Column("node"), Column("action"), *_SPENT), _node_rows(cost), width=terminal_width())
    if cost.models.cost_usd is None:
        yield ""
        yield "dollars    tokens only: not all prices are known; --prices FILE names them"


def _node_rows(cost: Cost) -> list[list[str]]:
    spending = cost.spending
    costly = sorted(spending.by_node.items(), key=lambda item: (item[1].cost_usd, item[1].usage.tokens), reverse=True)
    return [
        _spend_cells((node_id, spending.titles.get(node_id, "")), spend) for node_id, spend in costly[:_SHOWN_NODES]
    ]


def _spend_cells(names: tuple[str, str], spend: Spend) -> list[str]:
    usage = spend.usage
    return [
        *names,
        f"{usage.calls:,}",
        f"{usage.prompt_tokens:,}",
        f"{usage.cached_tokens:,}",
        f"{usage.completion_tokens:,}",
        f"{usage.reasoning_tokens:,}",
        _dollars(spend.known_usd),
    ]


def _dollars(cost_usd: float | None) -> str:
    return "-" if cost_usd is None else f"${cost_usd:,.4f}"


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
        _dollars(cost.cost_usd),
    ]


def _as_object(cost: Cost) -> dict[str, object]:
    fields: dict[str, object] = {**msgspec.structs.asdict(cost), "spared_s": cost.spared_s}
    spending = cost.spending
    del fields["spending"]
    fields["by_model"] = [
        {"role": role, "model": model, **_spend_object(spend)} for (role, model), spend in spending.by_model.items()
    ]
    fields["by_node"] = [
        {"node": node_id, "action": spending.titles.get(node_id, ""), **_spend_object(spend)}
        for node_id, spend in spending.by_node.items()
    ]
    roles = {"planner": cost.planner, "coder": cost.coder, "models": cost.models}
    return fields | {role: _role_object(asked) for role, asked in roles.items()}


def _spend_object(spend: Spend) -> dict[str, object]:
    usage: dict[str, object] = msgspec.structs.asdict(spend.usage)
    return usage | {"latency_s": sum(spend.latencies_s), "cost_usd": spend.known_usd}


def _role_object(cost: RoleCost) -> dict[str, object]:
    latencies = cost.latencies_s
    usage: dict[str, object] = msgspec.structs.asdict(cost.usage)
    return usage | {
        "latency_s": sum(latencies),
        "median_latency_s": median(latencies) if latencies else None,
        "longest_latency_s": max(latencies, default=None),
        "cost_usd": cost.cost_usd,
    }
