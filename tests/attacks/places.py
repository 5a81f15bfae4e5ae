"""What candidates may try to reach: a user's files, ports, keys and other candidates, laid out for the tests.

Everything is made for the occasion and removed afterwards; nothing of the real user's is touched, and candidates whose
way was open change nothing but these places.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import evaluators
from tests.attacks.cases import Places

OTHER = "0" * 31 + "1"
"""Artifact id of another candidate in the store."""


@contextmanager
def lay_places(folder: Path) -> Iterator[Places]:
    """Lay out what candidates look for.

    Args:
        folder: for temporary files; the evaluator's own lie there too.
    """
    nonce = secrets.token_hex(6)
    # Below the home folder, where a user's files are, and not in /tmp, where candidates may have a place of their own.
    user = Path(tempfile.mkdtemp(prefix="ksearch-attack-", dir=Path.home()))
    (user / "secret.txt").write_text(f'static const char stolen[] = "{nonce}-secret";\n')
    (user / "prose.txt").write_text(f"the password is {nonce}-prose\n")
    for file in ("secret.txt", "prose.txt"):
        (user / file).chmod(0o600)
    other = user / "artifacts" / OTHER
    other.mkdir(parents=True)
    for file in ("main.cpp", "kernel.py", "kernel.so"):
        (other / file).write_text("what another candidate is\n")
    with _listening(socket.SOCK_STREAM) as tcp, _listening(socket.SOCK_DGRAM) as udp, _listening_at(user) as local:
        yield {
            "NONCE": nonce,
            "SECRET": str(user / "secret.txt"),
            "PROSE": str(user / "prose.txt"),
            "STORE": str(user / "artifacts"),
            "OTHER": OTHER,
            "HOME": str(user),
            "TMP": str(folder),
            "REPOSITORY": str(Path(evaluators.__file__).parents[1]),
            "SITE": sysconfig.get_path("purelib"),
            "TORCH": str(Path(sysconfig.get_path("purelib")) / "torch" / "lib"),
            "PORT": str(tcp),
            "UDP_PORT": str(udp),
            "SOCKET": local,
            "KEY": f"sk-attack-{nonce}",
            "JUDGED_BY": str(os.getpid()),
            "SHM_KEY": str(int(nonce[:7], 16) | 1),
        }
    shutil.rmtree(user)


@contextmanager
def _listening(kind: socket.SocketKind) -> Iterator[int]:
    with socket.socket(socket.AF_INET, kind) as server:
        server.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            server.listen(64)
        yield server.getsockname()[1]


@contextmanager
def _listening_at(folder: Path) -> Iterator[str]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        path = str(folder / "socket")
        server.bind(path)
        server.listen(64)
        yield path


def leftovers(places: Places) -> list[str]:
    """Return what candidates have left on this host, and remove it."""
    return [*_left_files(places), *_left_processes(places), *_left_memory(places)]


def _left_files(places: Places) -> list[str]:
    nonce, found = places["NONCE"], list[str]()
    folders = [Path("/dev/shm"), Path(places["TMP"]), Path("/tmp"), Path(places["HOME"]), Path(places["SITE"])]  # noqa: S108
    folders += [Path(places["HOME"]) / ".triton", Path(places["HOME"]) / ".cache", Path(places["STORE"])]
    for folder in folders:
        for path in folder.glob(f"*attack*{nonce}*"):
            found.append(f"file {path}")
            path.unlink()
    found += [f"folder {path}" for path in Path(places["TMP"]).glob("ksearch-judge-*/run-*")]
    return found


def _left_processes(places: Places) -> list[str]:
    """Find those that work in the folder of a candidate, or run one: wherever they hang in the tree of processes."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            where = str((entry / "cwd").readlink())
            state = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if f"{places['TMP']}/" in where and "/run-" in where and state != "Z":
                found.append(f"process {entry.name} in {where}")
    return found


def _left_memory(places: Places) -> list[str]:
    """Find memory of System V's under the key that candidates of this collection use."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    found = [row for row in rows if row[0] == places["SHM_KEY"]]
    for row in found:
        subprocess.run(["ipcrm", "-m", row[1]], check=False)  # noqa: S607
    return [f"shared memory {row[1]}" for row in found]
