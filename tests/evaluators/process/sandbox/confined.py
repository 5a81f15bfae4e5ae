"""Runs `attempts.py` in the sandbox, beside a stand-in for the judge."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import evaluators
from evaluators.process.sandbox.confine import ALL

SCRIPT = Path(__file__).with_name("attempts.py")
ROOT = str(Path(evaluators.__file__).parents[1])


@contextmanager
def a_judge() -> Iterator[int]:
    """Have a process of this user wait; yield its id."""
    judge = subprocess.Popen(["/bin/sleep", "600"])
    try:
        yield judge.pid
    finally:
        judge.kill()
        judge.wait()


def try_all(tmp_path: Path, *, only: frozenset[str] = frozenset(ALL), profile: str = "run") -> dict[str, str]:
    """Return by attempt what came of it, in a process that entered only some layers."""
    outside, package, folder = (tmp_path / name for name in ("outside", "package", "folder"))
    for made in (outside, package, folder):
        made.mkdir(exist_ok=True)
    (outside / "credentials").write_text("secret")
    (package / "module.py").write_text("x = 1")
    with a_judge() as judge, socket.create_server(("127.0.0.1", 0)) as server:
        orders = {
            "root": ROOT,
            "profile": profile,
            "folder": str(folder),
            "reads": [str(package)],
            "outside": str(outside),
            "package": str(package),
            "judge": judge,
            "port": server.getsockname()[1],
            "without": sorted(set(ALL) - only),
        }
        command = [sys.executable, "-I", "-S", str(SCRIPT), json.dumps(orders)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    told: dict[str, str] = {}
    for line in done.stdout.splitlines():
        told |= json.loads(line)
    return told
