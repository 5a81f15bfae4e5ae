"""What the rules have per language: a catalogue of transformations, and a writer of sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from actors.llm.offline.cpp import codegen as cpp
from actors.llm.offline.cpp import codegen as cpp_workloads
from actors.llm.offline.cpp.moves import CATALOGUE as CPP_MOVES
from actors.llm.offline.cpp.stages.moves import CATALOGUE as CPP_STAGED_MOVES
from actors.llm.offline.graph import Program
from actors.llm.offline.plan import AnyMove, Catalogue, Plan
from actors.llm.offline.stages.ir import AnyProgram, Staged
from actors.llm.offline.triton import codegen as triton
from actors.llm.offline.triton import codegen as triton_workloads
from actors.llm.offline.triton.moves import CATALOGUE as TRITON_MOVES
from actors.llm.offline.triton.moves import STAGED_CATALOGUE as TRITON_STAGED_MOVES
from messages.base import Language

Contract: TypeAlias = cpp.Contract | triton.Contract
"""A calling contract; it says the language."""

_ROWS: Mapping[Language, Catalogue[Program]] = MappingProxyType({"cpp": CPP_MOVES, "triton": TRITON_MOVES})
_STAGED: Mapping[Language, Catalogue[Staged]] = MappingProxyType(
    {"cpp": CPP_STAGED_MOVES, "triton": TRITON_STAGED_MOVES}
)


def catalogue_of(language: Language, program: AnyProgram) -> Catalogue[Program] | Catalogue[Staged]:
    """Return the transformations of this kind of program."""
    return _ROWS[language] if isinstance(program, Program) else _STAGED[language]


def known_moves(language: Language, program: AnyProgram) -> tuple[AnyMove, ...]:
    """Return the transformations that make sense for a program."""
    if isinstance(program, Program):
        return _ROWS[language].known_moves(program)
    return _STAGED[language].known_moves(program)


def write_source(programs: Sequence[AnyProgram], plan: Plan, contract: Contract) -> tuple[str, str]:
    """Return the fence's info string and the source; of several workloads with the code of each, chosen by shapes.

    Raises:
        NoRuleError: the program holds something that the language has no rule for.
    """
    match contract:
        case cpp.Contract() if len(programs) == 1:
            source = cpp.write_source(programs[0], plan, contract)
        case cpp.Contract():
            source = cpp_workloads.write_workloads(programs, plan, contract)
        case triton.Contract() if len(programs) == 1:
            source = triton.write_source(programs[0], plan, contract)
        case triton.Contract():
            source = triton_workloads.write_workloads(programs, plan, contract)
    return ("cpp path=kernel.cpp" if isinstance(contract, cpp.Contract) else "python path=kernel.py"), source
