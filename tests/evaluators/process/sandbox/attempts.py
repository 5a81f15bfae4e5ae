"""What a hostile candidate would try: run by `python -I -S`, in a process that has entered the sandbox.

Its argument is a JSON object (`Orders` in `confined.py`). Prints a JSON object, by attempt what came of it: `done`, or
the error's name. Each attempt is done where nothing refuses it.
"""

# ruff: noqa: PLC0415, PTH108, PTH123, PTH208, S606, T201 - as a candidate would

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    orders: dict[str, Any] = json.loads(sys.argv[1])
    sys.path.insert(0, orders["root"])
    from evaluators.process.sandbox import profiles
    from evaluators.process.sandbox.confine import confine

    reads = tuple(orders["reads"])
    if orders["profile"] == "build":
        profile = profiles.build(orders["folder"], reads=reads)
    else:
        profile = profiles.run(orders["folder"], reads=reads, memory_bytes=2 << 30, file_bytes=1 << 16)
    confined = confine(profile, without=frozenset(orders["without"]))
    told = {name: outcome_of(attempt, orders) for name, attempt in ATTEMPTS.items()}
    told["layers"] = ", ".join(confined.active)
    print(json.dumps(told), flush=True)
    told = {"executes": outcome_of(execute, orders)}
    print(json.dumps(told), flush=True)


def outcome_of(attempt: Callable[[dict[str, Any]], object], orders: dict[str, Any]) -> str:
    try:
        attempt(orders)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


def call(name: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[name](*(ctypes.c_long(argument) for argument in arguments)) < 0:
        raise OSError(ctypes.get_errno(), name)


def write_outside(orders: dict[str, Any]) -> None:
    with open(orders["outside"] + "/written", "w") as file:
        file.write("x")


def read_the_credentials(orders: dict[str, Any]) -> None:
    with open(orders["outside"] + "/credentials") as file:
        file.read()


def list_the_outside(orders: dict[str, Any]) -> None:
    os.listdir(orders["outside"])


def unlink_a_package(orders: dict[str, Any]) -> None:
    os.unlink(orders["package"] + "/module.py")


def write_to_a_package(orders: dict[str, Any]) -> None:
    with open(orders["package"] + "/sitecustomize.py", "w") as file:
        file.write("x")


def connect_by_tcp(orders: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        client.connect(("127.0.0.1", orders["port"]))


def send_by_udp(orders: dict[str, Any]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", orders["port"]))


def fork(orders: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def leave_the_process_group(orders: dict[str, Any]) -> None:
    os.setpgid(0, 0)


def signal_the_judge(orders: dict[str, Any]) -> None:
    os.kill(orders["judge"], 0)


def trace_the_judge(orders: dict[str, Any]) -> None:
    seize = 0x4206  # undone by this process's end
    call("ptrace", seize, orders["judge"], 0, 0)


def read_the_judges_environment(orders: dict[str, Any]) -> None:
    with open(f"/proc/{orders['judge']}/environ", "rb") as file:
        file.read()


def open_the_judges_memory(orders: dict[str, Any]) -> None:
    with open(f"/proc/{orders['judge']}/mem", "rb"):
        pass


def list_the_judges_descriptors(orders: dict[str, Any]) -> None:
    os.listdir(f"/proc/{orders['judge']}/fd")


def pin_the_judge(orders: dict[str, Any]) -> None:
    os.sched_setaffinity(orders["judge"], os.sched_getaffinity(orders["judge"]))


def make_a_namespace(orders: dict[str, Any]) -> None:
    until = time.monotonic() + 5
    while True:
        try:
            return call("unshare", 0x10000000)
        except OSError as error:
            # A thread that was waited for is still there for the kernel, on a busy host for a while.
            if error.errno != errno.EINVAL or time.monotonic() > until:
                raise
            os.sched_yield()


def forget_the_parent(orders: dict[str, Any]) -> None:
    call("prctl", 1, 0, 0, 0, 0)


def open_a_ring(orders: dict[str, Any]) -> None:
    parameters = ctypes.create_string_buffer(128)
    number = ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(425), ctypes.c_long(1), parameters)
    if number < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")


def execute(orders: dict[str, Any]) -> None:
    os.execv("/bin/sh", ["sh", "-c", 'echo "{\\"executes\\": \\"done\\"}"'])


def write_to_the_own_folder(orders: dict[str, Any]) -> None:
    with open("own", "w") as file:
        file.write("x")
    os.unlink("own")


def read_what_is_named(orders: dict[str, Any]) -> None:
    with open(orders["package"] + "/module.py") as file:
        file.read()


def start_a_thread(orders: dict[str, Any]) -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def map_memory(orders: dict[str, Any]) -> None:
    with mmap.mmap(-1, 1 << 20, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as memory:
        memory[0] = 1


def load_a_library(orders: dict[str, Any]) -> None:
    ctypes.CDLL("libm.so.6")


def signal_itself(orders: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGCONT)
    signal.pthread_kill(threading.get_ident(), signal.SIGCONT)


def speculate(orders: dict[str, Any]) -> None:
    get_speculation_control, store_bypass, force_disabled = 52, 0, 8
    if ctypes.CDLL(None).prctl(get_speculation_control, store_bypass, 0, 0, 0) & force_disabled:
        raise OSError(errno.EPERM, "this process is slower in here than its user's")


HOSTILE: tuple[Callable[[dict[str, Any]], None], ...] = (
    write_outside,
    read_the_credentials,
    list_the_outside,
    unlink_a_package,
    write_to_a_package,
    connect_by_tcp,
    send_by_udp,
    fork,
    signal_the_judge,
    trace_the_judge,
    read_the_judges_environment,
    open_the_judges_memory,
    list_the_judges_descriptors,
    pin_the_judge,
    leave_the_process_group,
    forget_the_parent,
    open_a_ring,
    make_a_namespace,
)
HARMLESS: tuple[Callable[[dict[str, Any]], None], ...] = (
    write_to_the_own_folder,
    read_what_is_named,
    start_a_thread,
    map_memory,
    load_a_library,
    signal_itself,
    speculate,
)
# What does no harm comes first: a user namespace, made where nothing forbids it, changes what a process may do.
ATTEMPTS = {attempt.__name__: attempt for attempt in (*HARMLESS, *HOSTILE)}

if __name__ == "__main__":
    main()
