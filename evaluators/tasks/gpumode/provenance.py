"""Where a problem is from, and under what licence: read from the checkout that it lies in."""

from __future__ import annotations

from pathlib import Path

_LICENCES = ("LICENSE", "LICENSE.md", "LICENSE.txt", "COPYING")
_ABOVE = 6
_COMMIT = 12


def say_provenance(folder: Path) -> str:
    """Return a sentence: path in the checkout, commit and licence, as far as they can be told."""
    above = [folder, *folder.absolute().parents][:_ABOVE]
    root = next((one for one in above if (one / ".git").exists()), None)
    licence = next((one / name for one in above for name in _LICENCES if (one / name).is_file()), None)
    path = folder.absolute().relative_to(root).as_posix() if root else folder.name
    commit = _commit_of(root) if root else ""
    at = f" at commit {commit}" if commit else ""
    terms = f"licence: {_first_line(licence)}" if licence else "no licence file was found beside it"
    return f"Source: GPUMode problem `{path}`{at}; {terms}."


def _commit_of(root: Path) -> str:
    """Return the checkout's commit, shortened; empty where it is not told in plain files."""
    try:
        head = (root / ".git" / "HEAD").read_text(encoding="ascii").strip()
        if head.startswith("ref: "):
            head = (root / ".git" / head.removeprefix("ref: ")).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head[:_COMMIT]


def _first_line(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return path.name
    return next((line.strip("# ").strip() for line in lines if line.strip()), path.name)[:80]
