"""Turns a CUDA source into C++ that runs on a CPU, with `emulation.h` beside it: to check numbers without a GPU."""

from __future__ import annotations

import re
from pathlib import Path

from messages.tasks import Candidate, SourceFile

HEADER = Path(__file__).with_name("emulation.h")
_LAUNCH = re.compile(r"(\w+(?:<[\w, ]+>)?)<<<(.+?)>>>\((.*?)\);", re.DOTALL)


def emulated(source: Path) -> Candidate:
    """Return a CUDA source as a candidate in C++: every launch runs its grid at once, thread by thread."""
    text = source.read_text().replace("<cuda_runtime.h>", '"emulation.h"')
    files = (
        SourceFile(path="main.cpp", text=_LAUNCH.sub(_run, text)),
        SourceFile(path="emulation.h", text=HEADER.read_text()),
    )
    return Candidate(language="cpp", entry_point="ksearch_run", files=files)


def _run(launch: re.Match[str]) -> str:
    kernel, configuration, arguments = launch.groups()
    grid, threads, *_ = _parts(configuration)
    return f"emulation::run(dim3({grid}), dim3({threads}), [&] {{ {kernel}({arguments}); }});"


def _parts(text: str) -> list[str]:
    """Split at the commas that stand in no parentheses."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]
