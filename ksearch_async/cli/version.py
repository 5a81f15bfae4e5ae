"""`ksearch --version`: the versions that a report of a fault should name. Imports none of the packages."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from ksearch_async import __version__
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.views.terminal import put_json, put_lines

_PACKAGES = ("torch", "triton", "openai", "msgspec", "nats-py")


def version_command(*, as_json: JsonFlag = False) -> int:
    """Print the versions of ksearch-async, Python and the packages that matter.

    Args:
        as_json: Print one JSON object: name → version, null where it is not installed.
    """
    told = {
        "ksearch-async": __version__,
        **{name: _installed(name) for name in _PACKAGES},
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if as_json:
        put_json(told)
    else:
        put_lines(f"{name:<14} {said or 'not installed'}" for name, said in told.items())
    return exits.FOUND


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
