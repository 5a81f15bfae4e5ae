"""The command line. Commands are named by import path, so `ksearch --help` loads none of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

import cyclopts

from ksearch_async import __version__
from ksearch_async.cli import exits
from ksearch_async.cli.output import report_error
from messages.errors import ConfigError, KsearchError

app = cyclopts.App(
    name="ksearch",
    help="Find a fast, correct kernel for a reference program. Docs: docs/reference/cli.md",
    version=__version__,
    result_action="return_value",
)
for _name, _help in (
    ("run", "Search for a faster kernel."),
    ("resume", "Go on with a run that was stopped or killed."),
    ("show", "Show a run: state, best kernel, tree, counts by fate."),
    ("best", "Say where a run's best kernel lies and how fast it is."),
    ("eval", "Build, check and time one source file against a task."),
    ("doctor", "Check what a search needs on this machine."),
):
    app.command(f"ksearch_async.cli.{_name}:{_name}_command", name=_name, help=_help)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what people did wrong never becomes a traceback."""
    tokens = list(sys.argv[1:] if tokens is None else tokens)
    as_json = "--json" in tokens
    try:
        result = app(tokens, exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else exits.FOUND
    except cyclopts.CycloptsError as error:
        return _refuse_tokens(error, as_json=as_json)
    except BrokenPipeError:
        return _close_stdout()
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except KsearchError as error:
        return _report(error, as_json=as_json)
    except BaseExceptionGroup as group:
        return _report_group(group, as_json=as_json)


def _refuse_tokens(error: cyclopts.CycloptsError, *, as_json: bool) -> int:
    error.verbose = False
    chain = " ".join(error.command_chain or ())
    error.add_note(f"ksearch {chain} --help".replace("  ", " ") + " lists what is understood")
    report_error(error, as_json=as_json)
    return exits.BAD_INPUT


def _report(error: KsearchError, *, as_json: bool) -> int:
    report_error(error, as_json=as_json)
    return exits.BAD_INPUT if isinstance(error, ConfigError) else exits.INFRASTRUCTURE


def _report_group(group: BaseExceptionGroup[BaseException], *, as_json: bool) -> int:
    """Report the error of ours among those that ended a task group together; raise again if there is none."""
    leaves = list(_leaves(group))
    if any(isinstance(leaf, BrokenPipeError) for leaf in leaves):
        return _close_stdout()
    ours = [leaf for leaf in leaves if isinstance(leaf, KsearchError)]
    if len(ours) == len(leaves):
        return _report(ours[0], as_json=as_json)
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        return exits.INTERRUPTED
    raise group


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _close_stdout() -> int:
    """Point stdout nowhere, so that the interpreter's last flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exits.BROKEN_PIPE
