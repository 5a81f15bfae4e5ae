"""`ksearch completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

from typing import Literal

from ksearch_async.cli import app, exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.views.terminal import put_json, put_raw


def completion_command(shell: Literal["bash", "zsh", "fish"], /, *, as_json: JsonFlag = False) -> int:
    """Print the script with which a shell completes ksearch's commands and options.

    Args:
        shell: The shell to print it for.
        as_json: Print one JSON object: `{"shell": …, "script": …}`.
    """
    script = app.generate_completion(shell=shell)
    if as_json:
        put_json({"shell": shell, "script": script})
    else:
        put_raw(script.rstrip("\n"))
    return exits.FOUND
