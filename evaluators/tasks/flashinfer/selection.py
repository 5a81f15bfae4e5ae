"""Which of a definition's workloads a task has.

    (nothing)                five, drawn with seed 0
    draw=5,seed=7,hidden=3   five, drawn with a seed, and three others that are held out
    all                      all that were recorded
    UUID,UUID                these; the beginning of an id is enough
    small                    none of them: sizes made up for a CPU, and for definitions without workloads

- `select(definition, workloads, selection: str) -> Selected`, raises ConfigError
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from evaluators.tasks.flashinfer.constraints import Known, Unknown, holds, said_axis
from evaluators.tasks.flashinfer.drawing import TOP_K_INDEXER
from evaluators.tasks.flashinfer.schema import Definition, Workload
from messages.base import ConfigError

FEEDBACK = 5
"""How many workloads candidates are timed on where nobody says it, as in the original K-Search."""
ALL, SMALL = "all", "small"
_DRAWN_WORDS = ("draw", "seed", "hidden")
_ROUNDS = 12

_SMALL_SIZES = (
    {
        "batch_size": 3,
        "num_pages": 24,
        "num_kv_indices": 17,
        "total_q": 7,
        "total_kv": 19,
        "len_indptr": 4,
        "seq_len": 4,
        "num_tokens": 3,
        "total_seq_len": 9,
        "num_seqs": 2,
        "max_seq_len": 32,
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "M": 5,
    },
    {
        "batch_size": 1,
        "num_pages": 13,
        "num_kv_indices": 9,
        "total_q": 2,
        "total_kv": 5,
        "len_indptr": 2,
        "seq_len": 2,
        "num_tokens": 2,
        "total_seq_len": 3,
        "num_seqs": 1,
        "max_seq_len": 16,
        "num_qo_heads": 2,
        "num_kv_heads": 2,
        "M": 1,
    },
)
_OTHER_SIZE = 4
_MORE_PAGES = 4
_SAMPLED_ROWS = 5
"""Times more rows where outputs are drawn: each is one draw in a call."""


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads of a task."""

    shown: tuple[Workload, ...]
    hidden: tuple[Workload, ...] = ()
    told: str
    """The selection, written so that it gives the same workloads again."""


def select(definition: Definition, workloads: Sequence[Workload], selection: str) -> Selected:
    """Return the workloads that a selection names.

    Raises:
        ConfigError: it is of none of the forms above, or there are no such workloads.
    """
    if selection == SMALL:
        return Selected(shown=small_workloads(definition), told=SMALL)
    if not workloads:
        raise ConfigError(
            f"definition {definition.name!r} has no workloads in this folder; "
            f"with ':{SMALL}' behind it, sizes are made up for it"
        )
    if selection == ALL:
        return Selected(shown=tuple(workloads), told=ALL)
    if not selection or "=" in selection:
        return _drawn(workloads, _numbers(selection))
    chosen = tuple(_found(workloads, word.strip(), definition.name) for word in selection.split(","))
    uuids = [workload.uuid for workload in chosen]
    return Selected(shown=tuple(dict(zip(uuids, chosen, strict=True)).values()), told=",".join(dict.fromkeys(uuids)))


def small_workloads(definition: Definition) -> tuple[Workload, ...]:
    """Return workloads with sizes that a CPU takes little time for, made up so that the constraints hold.

    Raises:
        ConfigError: no such sizes were found.
    """
    found = (_small(definition, sizes, f"{SMALL}-{number}") for number, sizes in enumerate(_SMALL_SIZES, start=1))
    return tuple({tuple(sorted(one.axes.items())): one for one in found}.values())


def _small(definition: Definition, sizes: dict[str, int], name: str) -> Workload:
    axes = {axis: sizes.get(axis, _OTHER_SIZE) for axis in definition.var_axes}
    if definition.op_type == "sampling":
        axes["batch_size"] = axes.get("batch_size", _OTHER_SIZE) * _SAMPLED_ROWS
    for _ in range(_ROUNDS):
        for constraint in definition.constraints:
            for axis in axes:
                others = {other: size for other, size in _all_axes(definition, axes).items() if other != axis}
                if (said := said_axis(constraint, others)) is not None:
                    axes[axis] = said[1]
        broken = [one for one in definition.constraints if not _may_hold(one, _all_axes(definition, axes))]
        if not broken:
            if "max_num_pages" in axes and "num_pages" in axes:
                # More keys than an indexer picks from most rows, and no page twice in a row.
                axes["max_num_pages"] *= _MORE_PAGES if definition.name.startswith(TOP_K_INDEXER) else 1
                axes["num_pages"] = max(axes["num_pages"], axes["max_num_pages"])
            return Workload(uuid=name, axes=axes, inputs={})
        axes = {axis: 2 * size if any(axis in one for one in broken) else size for axis, size in axes.items()}
    raise ConfigError(f"definition {definition.name!r}: no small sizes were found that keep {broken[0]!r}")


def _all_axes(definition: Definition, axes: dict[str, int]) -> dict[str, Known]:
    return {**definition.const_axes, **axes}


def _may_hold(constraint: str, axes: dict[str, Known]) -> bool:
    try:
        return holds(constraint, axes)
    except Unknown:
        return True


def _drawn(workloads: Sequence[Workload], numbers: dict[str, int]) -> Selected:
    count, seed, hidden = numbers["draw"], numbers["seed"], numbers["hidden"]
    if count < 1 or hidden < 0 or count + hidden > max(len(workloads), FEEDBACK):
        raise ConfigError(
            f"there are {len(workloads)} workloads: {count} to be shown and {hidden} to be hidden do not fit"
        )
    order = random.Random(seed).sample(range(len(workloads)), len(workloads))
    shown, held_out = sorted(order[:count]), sorted(order[count : count + hidden])
    also = f",hidden={hidden}" if hidden else ""
    return Selected(
        shown=tuple(workloads[number] for number in shown),
        hidden=tuple(workloads[number] for number in held_out),
        told=f"draw={count},seed={seed}{also}",
    )


def _numbers(selection: str) -> dict[str, int]:
    numbers = {"draw": FEEDBACK, "seed": 0, "hidden": 0}
    for part in filter(None, selection.split(",")):
        word, _, value = part.strip().partition("=")
        if word not in _DRAWN_WORDS or not value.isdecimal():
            raise ConfigError(f"{part!r} draws no workloads; expected draw=5, seed=7 or hidden=3, with commas")
        numbers[word] = int(value)
    return numbers


def _found(workloads: Sequence[Workload], word: str, name: str) -> Workload:
    found = [workload for workload in workloads if workload.uuid == word]
    found = found or [workload for workload in workloads if word and workload.uuid.startswith(word)]
    if len(found) != 1:
        count = "no workload" if not found else f"{len(found)} workloads whose id begins with"
        raise ConfigError(
            f"definition {name!r} has {count} {word!r} (it has {len(workloads)}, the first is {workloads[0].uuid}; "
            f"':{ALL}' means all of them)"
        )
    return found[0]
