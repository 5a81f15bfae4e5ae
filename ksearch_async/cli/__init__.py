"""The command line. Commands are named by import path, so `ksearch --help` loads none of them."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import cleandoc
from types import FrameType

import cyclopts

from ksearch_async.cli import exits
from ksearch_async.errors import cause_of, refusal
from ksearch_async.views.terminal import note, report_error
from messages.base import ConfigError, KsearchError

_COMMANDS = {
    "run": """Search for a faster kernel.

    Without --model the built-in rules plan and write; they are not a language model. A key is read from
    KSEARCH_API_KEY, OPENAI_API_KEY or LLM_API_KEY. Options can be set in a file (-c), and in the environment
    (`KSEARCH_BRANCHES=8`).

    Ends with 0 if a correct kernel is faster than the reference (its interval's lower bound is above 1), 1 if none is,
    2 for bad input, 3 if the infrastructure failed, 130 if interrupted. The first Ctrl-C lets evaluations in flight
    finish, the second stops now; `ksearch resume` goes on after either.

    With --detach it goes on when the terminal closes: `ksearch watch` shows it, `ksearch stop` stops it.

    The flags of the original K-Search are understood as well: docs/guides/coming-from-k-search.md lists them.""",
    "resume": """Go on with a run that was stopped or killed.

    No question or measurement in its journal is repeated. Its configuration is the saved one: options that are not
    given stay as they were. Only budget, model and workers may change; the error names any other changed option. Ends
    as `ksearch run` does. For a run that has ended only the summary is printed, unless its budget is raised.""",
    "watch": """Follow a run in a folder or on a NATS server: past events, then new ones as they arrive.

    Changes nothing. Ends as `ksearch run` does when the run is over. Ctrl-C ends the view (130), not the run.""",
    "web": """Serve the dashboard: runs in a folder, or on a NATS server, in a browser.

    Prints its address; the part behind # holds the token that lets the page steer runs. Other hosts reach it only if
    a token is set. Runs until Ctrl-C or SIGTERM. Exit codes: 0 then, 2 for bad input, 3 if the NATS server cannot be
    reached.""",
    "stop": """Stop a run: evaluations in flight are finished, and it can be resumed.

    Ends with 0 once the planner has accepted it, or if the run is stopping or over already; 2 if its process was
    killed, 3 if it is on a server and no planner leads it. Ctrl-C in its terminal does the same.""",
    "pause": """Pause a run: jobs in flight are finished and counted, no new ones begin.

    Its time limit does not count the pause. Ends with 0 once the planner has accepted it, 2 if the run is
    stopping or over or its process was killed, 3 if it is on a server and no planner leads it.""",
    "continue": "Continue a paused run.",
    "tell": """Tell a run's models something: it is part of every later prompt until it is forgotten.

    `--list` shows earlier notes, `--forget N` takes one back. On a run that has ended, the note takes effect when the
    run is resumed. Both hold for all steering commands.""",
    "pin": "Choose an action next, once, regardless of its score.",
    "boost": "Add to an action's score; `ksearch tree RUN --why` shows it.",
    "forbid": "Never choose an action, or any below it.",
    "release": "Take back a pin, a boost or a ban.",
    "inject": """Add your own kernel to a run's tree.

    It is built, evaluated and attached as any other, and counts as a round.""",
    "ls": "List runs, the most recently written first.",
    "show": "Show a run: state, best kernel, tree, attempts by status; or the attempts of a node.",
    "tree": "Draw a run's tree: each action's best result, state, V, and how its attempts failed.",
    "best": """Show the path and the speed of a run's best kernel.

    Ends with 1 if no candidate was correct and timed.""",
    "diff": "Show what changed from one candidate to another, as a unified diff.",
    "compare": """Compare runs of one task: results and costs.

    Runs that differ by their seeds alone are one group, with medians and ranges. Ends with 0, with 2 for runs of
    different tasks.""",
    "report": """Write a report about runs: one page in one file, which needs no network.

    With --svg and --png: figures for papers. Needs `pip install ksearch-async[plot]`; exit code 2 without it.""",
    "replay": """Replay a run from its journal, and compare prompts, answers, decisions and tree.

    Rebuilds each prompt, looks up its recorded answer, parses the answer again and repeats the decision with the
    recorded verdicts. Asks no model and evaluates nothing. Lists the differences; exit code 0 without any, else 1.""",
    "cost": "Show the costs of runs: model calls and tokens by role, wall-clock, builds and evaluations.",
    "tasks": "List the bundled problems; `ksearch tasks show TASK` shows one.",
    "eval": """Build, check and time source files for a task, or measure the best kernel of a run again.

    Ends with 0 if all were measured, 1 for any other verdict, 2 for bad input, 3 if the evaluator itself failed.""",
    "export": """Write a run's best kernel as one module that does not need ksearch.

    The module contains a callable, the receipt of the kernel's measurement and a self-test. Ends with 0 when it is
    written, 1 if the export needed an evaluation and the kernel failed it, 2 for bad input, 3 if the evaluator
    itself failed.""",
    "bench": """Evaluate candidates for a set of a benchmark's problems, and print its metrics.

    `ksearch bench kernelbench --level 1 --ids 1-20`. Ends with 0 if all were measured, 1 if not, 2 for bad input.""",
    "new-task": """Write a task of your own: a folder with a commented task.toml and a reference that works.

    Ends with 0 when it is written, 2 for bad input.""",
    "check-task": """Check that a task can tell a kernel from an answer that computes nothing.

    Its own reference is then evaluated like a candidate. Ends with 0 if both succeed, 1 if the task is
    marked or refused or its reference fails, 2 for bad input, 3 if the evaluator itself failed.""",
    "doctor": """Check this machine for all that a search needs.

    Ends with 3 if a requirement is missing.""",
    "offline-model": """Serve the built-in rules as an OpenAI-compatible endpoint on this host.

    For trying a search, or any other client, against an endpoint that is slow, makes mistakes and fails on demand.
    Ends with Ctrl-C or SIGTERM and prints its statistics; `GET /stats` has them at any time.""",
    "planner": """Stand by for the runs of a NATS server, and lead those without a planner.

    A run that lost its planner is taken over when the lease has expired, after ten seconds; nothing is decided twice.
    Each run is recorded in a folder of its own. Ctrl-C (or SIGTERM) gives all leases back, and another planner goes
    on at once. Ends with 0 after leaving, 2 for bad input, 3 if the server cannot be reached.""",
    "coder": """Write candidates for all runs of a NATS server, with one model.

    A key is read from KSEARCH_API_KEY, OPENAI_API_KEY or LLM_API_KEY. Joins current and later runs. The
    first Ctrl-C (or SIGTERM) finishes the jobs in hand, the second hands them back. Ends with 0 after leaving, 2 for
    bad input, 3 if the server cannot be reached, 130 if jobs had to be handed back.""",
    "builder": """Compile candidates for all runs of a NATS server with this host's compilers.

    Builds known kernels first as a self-test; exit code 3 if that fails. Joining, leaving and the other exit codes are
    as for `ksearch coder`.""",
    "evaluator": """Judge candidates for all runs of a NATS server on this host's device.

    Checks and times known kernels first as a self-test; exit code 3 if that fails. Joining, leaving and the other exit
    codes are as for `ksearch coder`. Candidates are programs that models wrote, and they are executed here:
    docs/guides/distributed.md describes the precautions.""",
    "nodes": "List the nodes of a NATS server, their work, and its runs.",
    "nats": """Run a NATS server for many hosts, prepare one, or write the configuration of one.

    `ksearch nats serve` runs a server, `ksearch nats init` prepares one or writes its users and rights into files.
    `ksearch nats runs` lists the data that a server keeps of runs, `ksearch nats forget` removes it.""",
    "completion": "Print the script with which a shell completes commands and options.",
    "--version": "Print the versions of ksearch-async, Python and the packages that matter.",
}
"""Summaries of the commands for `--help`, kept here so that listing the commands loads none of them."""

_GROUPS = {
    cyclopts.Group("Search", sort_key=1): ("run", "resume", "eval", "bench", "export"),
    cyclopts.Group("Steer", sort_key=2): (
        "tell",
        "pin",
        "boost",
        "forbid",
        "release",
        "inject",
        "stop",
        "pause",
        "continue",
    ),
    cyclopts.Group("Look back", sort_key=3): (
        "ls",
        "show",
        "tree",
        "best",
        "diff",
        "compare",
        "cost",
        "replay",
        "report",
        "web",
    ),
    cyclopts.Group("Many machines", sort_key=4): (
        "watch",
        "planner",
        "coder",
        "builder",
        "evaluator",
        "nodes",
        "nats",
    ),
    cyclopts.Group("Set up", sort_key=5): ("tasks", "new-task", "check-task", "doctor", "offline-model", "completion"),
}
"""Commands by the heading under which `--help` lists them."""

_MODULES = {
    **dict.fromkeys(("tell", "pin", "boost", "forbid", "release", "inject", "stop", "pause", "continue"), "steer"),
    **dict.fromkeys(("coder", "builder", "evaluator"), "node"),
}
"""Module of each command that has none of its own name."""

app = cyclopts.App(
    name="ksearch",
    help="Find a fast, correct kernel for a reference program.",
    version_flags=(),
    group_commands=cyclopts.Group("Options", sort_key=6),
    result_action="return_value",
)
for _name, _help in _COMMANDS.items():
    _group = next((group for group, names in _GROUPS.items() if _name in names), None)
    _word = _name.strip("-").replace("-", "_")
    _entry = f"{_word}_app" if _word in ("nats", "tasks") else f"{_word}_command"
    _module = _MODULES.get(_word, _word)
    app.command(f"ksearch_async.cli.{_module}:{_entry}", name=_name, help=cleandoc(_help), group=_group)


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; what people did wrong never becomes a traceback."""
    gc.disable()  # imports make many objects, all of which stay: looking for garbage is a tenth of a start's time
    try:
        with _sigterm_as_ctrl_c():
            return _run(list(sys.argv[1:] if tokens is None else tokens))
    except BrokenPipeError:
        _let_go_of_pipes()
        return exits.BROKEN_PIPE
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # rich, which prints the help, makes one of the other
            raise
        return exits.BROKEN_PIPE
    finally:
        gc.enable()


def _run(tokens: list[str]) -> int:
    report = partial(report_error, as_json="--json" in tokens, as_event=tokens[:1] in (["run"], ["resume"], ["watch"]))
    try:
        result = app(_in_our_words(tokens), exit_on_error=False, print_error=False)
        return result if isinstance(result, int) else exits.FOUND
    except cyclopts.CycloptsError as error:
        report(_explained(error))
        return exits.BAD_INPUT
    except BaseExceptionGroup as group:
        return _code_for(cause_of(group), report)
    except (KsearchError, KeyboardInterrupt) as error:
        return _code_for(error, report)


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Have SIGTERM unwind what a command began, as Ctrl-C does: by itself it would leave a folder behind."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    """Do what Ctrl-C does now, or would do: shells have their background jobs ignore it."""
    on_ctrl_c = signal.getsignal(signal.SIGINT)
    if not callable(on_ctrl_c):
        raise KeyboardInterrupt
    on_ctrl_c(signal.SIGINT, frame)


def _in_our_words(tokens: list[str]) -> list[str]:
    """Translate the original K-Search's flags, which `ksearch run` understands."""
    if tokens[:1] != ["run"]:
        return tokens
    from ksearch_async.cli.original import translated  # noqa: PLC0415 - `ksearch --help` needs none of it

    translation = translated(tokens[1:], os.environ)
    for said in translation.notes:
        note(said)
    return ["run", *translation.tokens]


def _code_for(error: BaseException, report: Callable[[BaseException], None]) -> int:
    """Report an error that has a meaning for people, and return its exit code; raise any other."""
    if isinstance(error, KeyboardInterrupt):
        return exits.INTERRUPTED
    if not isinstance(error, KsearchError):
        raise error
    report(error)
    return exits.BAD_INPUT if isinstance(error, ConfigError) else exits.INFRASTRUCTURE


def _explained(error: cyclopts.CycloptsError) -> BaseException:
    command = " ".join(("ksearch", *(error.command_chain or ())))
    hint = f"{command} --help lists what is understood"
    if isinstance(error, cyclopts.UnusedCliTokensError):
        return refusal(f"not expected here: {', '.join(map(repr, error.unused_tokens or ()))}", hint)
    if command == "ksearch resume" and isinstance(error, cyclopts.UnknownOptionError):
        from ksearch_async.settings.options import is_kept  # noqa: PLC0415 - `ksearch --help` needs none of it

        option = (error.token.keyword or error.token.value).partition("=")[0]
        if is_kept(option.removeprefix("--").removeprefix("no-")):
            return refusal(
                f"{option} cannot change when a run is resumed: it keeps what it was started with",
                "budget, model, workers and sync may change; for anything else start a new run",
            )
    error.verbose = False
    error.add_note(hint)
    return error


def _let_go_of_pipes() -> None:
    """Redirect a closed standard stream to the null device, so that the interpreter's last flush cannot fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
