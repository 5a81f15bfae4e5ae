"""A process that calls a candidate: what it tries, and what each layer is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from evaluators.process.sandbox import identity, landlock, namespaces, privileges, root, seccomp, users
from evaluators.process.sandbox.confine import ALL
from evaluators.process.sandbox.probe import probe_layers
from tests.evaluators.process.sandbox.attempts import HARMLESS, HOSTILE
from tests.evaluators.process.sandbox.confined import ROOT, try_all
from tests.orphans import still_running

HOSTILE_NAMES = [attempt.__name__ for attempt in HOSTILE] + ["executes"]
HARMLESS_NAMES = [attempt.__name__ for attempt in HARMLESS]

OF_FILES = {"write_outside", "read_the_credentials", "unlink_a_package", "write_to_a_package"}
OF_PROCESSES = {"trace_the_judge", "read_the_judges_environment", "open_the_judges_memory"}
OF_CALLS = {
    *("fork", "executes", "connect_by_tcp", "send_by_udp", "signal_the_judge", "trace_the_judge", "pin_the_judge"),
    *("leave_the_process_group", "forget_the_parent", "open_a_ring", "make_a_namespace"),
}
BY_LAYER = {
    # The ptrace of root needs a capability that it gives up; Landlock refuses what is left.
    (landlock.NAME,): OF_FILES | {"connect_by_tcp", "signal_the_judge", "executes"} | OF_PROCESSES,
    (seccomp.NAME,): OF_CALLS,
    (namespaces.NAME, users.NAME): {"connect_by_tcp", "send_by_udp"} | OF_PROCESSES,
    (namespaces.NAME, users.NAME, root.NAME): {"list_the_outside", *OF_FILES, *OF_PROCESSES},
    (namespaces.NAME, users.NAME, root.NAME, identity.NAME): {"signal_the_judge", "pin_the_judge", *OF_PROCESSES},
}


@pytest.fixture(scope="module")
def behind_all(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return try_all(tmp_path_factory.mktemp("all"))


@pytest.fixture(scope="module")
def behind_nothing(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return try_all(tmp_path_factory.mktemp("nothing"), only=frozenset())


def test_this_host_says_which_layers_it_has_and_a_runner_enters_them(behind_all: dict[str, str]) -> None:
    host = probe_layers()
    names = {"landlock", "seccomp", "namespaces", "user namespace", "private root", "uid", "no privileges", "rlimits"}
    assert set(ALL) == names
    entered = set(behind_all["layers"].split(", "))
    assert entered | set(host.missing) == set(ALL)
    assert not entered & set(host.missing)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_candidate_is_refused(name: str, behind_all: dict[str, str]) -> None:
    if probe_layers().missing_for_strict:
        pytest.skip(f"this host lacks {', '.join(probe_layers().missing_for_strict)}")
    if (
        name == "list_the_outside"
        and root.NAME not in behind_all["layers"]
        and landlock.NAME not in behind_all["layers"]
    ):
        pytest.skip("this host has neither Landlock nor private roots")
    assert behind_all[name] != "done"


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_an_honest_candidate_is_not_hindered(name: str, behind_all: dict[str, str]) -> None:
    assert behind_all[name] == "done"


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, *HARMLESS_NAMES])
def test_without_a_sandbox_the_attempt_would_succeed(name: str, behind_nothing: dict[str, str]) -> None:
    if behind_nothing[name] in {"EPERM", "EACCES", "ENOSYS"} and name in {
        *OF_PROCESSES,
        "open_a_ring",
        "make_a_namespace",
    }:
        pytest.skip(f"this host itself refuses it: {behind_nothing[name]}")
    assert behind_nothing[name] == "done"


@pytest.mark.parametrize("layers", BY_LAYER, ids="+".join)
def test_each_layer_alone_refuses_its_share(layers: tuple[str, ...], tmp_path: Path) -> None:
    for layer in layers:
        if why := probe_layers().missing.get(layer):
            pytest.skip(f"this host has no {layer}: {why}")
    told = try_all(tmp_path, only=frozenset({*layers, privileges.NAME}))
    succeeded = {name for name in BY_LAYER[layers] if told[name] == "done"}
    assert succeeded == set()
    assert {told[name] for name in HARMLESS_NAMES} == {"done"}


PARENT = """
import ctypes, os, sys, time
sys.path.insert(0, sys.argv[1])
from evaluators.process.sandbox import profiles
from evaluators.process.sandbox.confine import confine
pid = os.fork()
if pid == 0:
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    confine(profiles.run(sys.argv[2], reads=(), memory_bytes=0, file_bytes=1 << 16))
    os.write(1, b"confined\\n")
    time.sleep(600)
os.waitpid(pid, 0)
"""


def test_a_confined_process_still_ends_with_its_judge(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", "-c", PARENT, ROOT, str(tmp_path)]
    judge = psutil.Popen(command, stdout=subprocess.PIPE)
    assert judge.stdout is not None
    assert judge.stdout.readline() == b"confined\n"
    (runner,) = judge.children()
    judge.kill()
    judge.wait()
    judge.stdout.close()
    alive = still_running([runner])
    for process in alive:
        process.kill()
    assert alive == []


CANDIDATE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from evaluators.process.sandbox.confine import confine
from evaluators.process.sandbox.profiles import run
confine(run(os.getcwd(), reads=(), memory_bytes=1 << 33, file_bytes=1 << 20))
print("ready", flush=True)
other = int(sys.stdin.readline())
ways = {
    "affinity": lambda: os.sched_setaffinity(other, {min(os.sched_getaffinity(0))}),
    "policy": lambda: os.sched_setscheduler(other, os.SCHED_IDLE, os.sched_param(0)),
    "parameters": lambda: os.sched_setparam(other, os.sched_param(0)),
    "niceness": lambda: os.setpriority(os.PRIO_PROCESS, other, 19),
}
for name, way in ways.items():
    try:
        way()
        print(name, flush=True)
    except PermissionError:
        pass
"""
"""Says by which ways it could slow the process whose id it reads."""


def test_a_candidate_does_not_schedule_another(tmp_path: Path) -> None:
    if seccomp.NAME in probe_layers().missing:
        pytest.skip("this host has no seccomp")
    command = [sys.executable, "-I", "-S", "-c", CANDIDATE, ROOT]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one, other = (subprocess.Popen(command, cwd=folder, **pipes) for folder in folders)  # type: ignore[call-overload]
    try:
        for process in (one, other):
            assert process.stdout.readline() == "ready\n"
        assert one.communicate(f"{other.pid}\n", timeout=30)[0] == ""
        own = other.communicate(f"{other.pid}\n", timeout=30)[0]
        assert own.split() == ["affinity", "policy", "parameters", "niceness"], "its own are its own affair"
    finally:
        for process in (one, other):
            process.kill()
            process.wait()


OLDER_KERNEL = """
import errno, os, socket, sys
sys.path.insert(0, sys.argv[1])
from evaluators.process.sandbox import kernel, seccomp
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
refuses = seccomp._return(0x00050000 | errno.EINVAL)
rules = seccomp._if(seccomp._EQUALS, 4 | 1, [refuses])
code = [seccomp._load(seccomp._NUMBER_AT)]
code += seccomp._if(seccomp._EQUALS, kernel.SECCOMP, [seccomp._load(seccomp._ARGUMENTS_AT + 8), *rules])
code = b"".join([*code, seccomp._return(seccomp._ALLOW)])
kernel.system_call(kernel.SECCOMP, 1, 0, seccomp._Program(len(code) // 8, code))
seccomp.install(starts_processes=False)
try:
    socket.socket()
except PermissionError:
    print("refused")
"""
"""Has the kernel know one flag of filters only, as gVisor does; then installs ours."""


def test_a_kernel_that_knows_fewer_flags_still_filters() -> None:
    if seccomp.NAME in probe_layers().missing:
        pytest.skip("this host has no seccomp")
    command = [sys.executable, "-I", "-S", "-c", OLDER_KERNEL, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("refused\n", "")
