"""Writes the problem file of a GPUMode task: the competition's reference, called as our judge calls references."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.tasks.gpumode.contract import Contract

_CHECK = (
    "",
    "",
    'AS_DRAWN = ["data"]',
    "",
    "",
    "def check_outputs(data, output):",
    "    return complaint_of(reference.check_implementation(data, output))",
)
"""Other data than the problem draws may have none of the properties that its checker relies on (symmetry)."""
HELPERS = "upstream_case"
"""Module of what a generated file needs, besides the competition's `reference`."""


def write_problem(
    contract: Contract, cases: Sequence[Sequence[str]], *, flags: Sequence[str], lists: Sequence[str]
) -> str:
    """Return a problem file.

    Args:
        contract: how the reference is called.
        cases: the names that each case gives.
        flags: arguments that are false in a case: the competition's harness hands them over as texts, which are true.
        lists: arguments that are lists, given as literals.
    """
    lines = [
        '"""A problem of the GPUMode competition: `reference` is the competition\'s own module, unchanged."""',
        "",
        *(["import ast", ""] if lists else []),
        "from torch import nn",
        "",
        "import reference",
        *([f"from {HELPERS} import {', '.join(needed)}"] if (needed := _needed(contract, flags)) else []),
        *(["", f"PASSES = {contract.passes!r}"] if contract.passes else []),
        "",
        "",
        *_model(contract),
        "",
        "",
        *_generator(contract, cases, flags=flags, lists=lists),
        "",
        "",
        "def get_init_inputs():",
        "    return []",
        *(_CHECK if contract.tolerance.checks else []),
    ]
    return "\n".join(lines) + "\n"


def _needed(contract: Contract, flags: Sequence[str]) -> list[str]:
    wanted = {
        "as_handed_out": bool(flags),
        "complaint_of": contract.tolerance.checks,
        "drawn": contract.takes_seed,
        "like_rooms": bool(contract.rooms),
        "with_rooms": bool(contract.rooms),
    }
    return [name for name, is_wanted in wanted.items() if is_wanted]


def _model(contract: Contract) -> list[str]:
    lines = ["class Model(nn.Module):", "    def forward(self, data):"]
    if contract.passes:
        call = "reference.reference_forward(logits, targets), reference.reference_backward(logits, targets, upstream)"
        return [*lines, "        logits, targets, upstream = data", f"        return {call}"]
    if contract.rooms:
        rooms = ", ".join(f"data[{place}]" for place in contract.rooms)
        return [*lines, f"        return like_rooms(reference.ref_kernel(data), [{rooms}])"]
    return [*lines, "        return reference.ref_kernel(data)"]


def _generator(
    contract: Contract, cases: Sequence[Sequence[str]], *, flags: Sequence[str], lists: Sequence[str]
) -> list[str]:
    """Return `get_inputs`: its arguments are what all cases give, and with a default of none what some give."""
    names = tuple(dict.fromkeys(name for case in cases for name in case))
    always = [name for name in names if all(name in case for case in cases)]
    sometimes = [name for name in names if name not in always]
    signature = ", ".join((*always, *(f"{name}=None" for name in sometimes)))
    values = [f"{name!r}: {_value(name, contract, lists)}" for name in always]
    values += [f"{name!r}: {value}" for name, value in contract.given.items() if name not in names]
    if contract.takes_seed and "seed" not in names:
        values.append("'seed': drawn(0)")
    lines = [f"def get_inputs({signature}):", f"    given = {{{', '.join(values)}}}"]
    for name in sometimes:
        lines += [f"    if {name} is not None:", f"        given[{name!r}] = {_value(name, contract, lists)}"]
    make = f"reference.{contract.generator}"
    data = f"as_handed_out({make}, given, {list(flags)!r})" if flags else f"{make}(**given)"
    if contract.rooms:
        data = f"with_rooms({data}, {list(contract.rooms)!r})"
    return [*lines, f"    return [{data}]"]


def _value(name: str, contract: Contract, lists: Sequence[str]) -> str:
    if name == "seed" and contract.takes_seed:
        return "drawn(seed)"
    return f"ast.literal_eval({name})" if name in lists else name
