"""A process beside the one that tests: maps shared memory of a GPU, and does with it what it is told, line by line.

`python -P -m tests.evaluators.hardware.vendors.side PACKAGE FD BYTES`. Lines: `fill N` (with a byte), `work N` (fills N
times, and does not wait for that), `sum` (answers it), `span` (the time of an empty span, asked for now, and how long
that took by this process's clock). Answers are lines.
"""

from __future__ import annotations

import importlib
import sys
import time


def main() -> int:
    package, fd, size_bytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    driver = importlib.import_module(f"{package}.driver")
    context = driver.Context()
    address = driver.attach(context, fd, size_bytes)
    memory = importlib.import_module(f"{package}.tensors").view_memory(address, size_bytes)
    clock = driver.SpanClock(context, context.make_stream())
    for _ in range(2):  # the first events take long
        clock.begin()
        clock.end()
        context.synchronize()
    answer("ready")
    for line in sys.stdin:
        word, *number = line.split()
        if word == "fill":
            memory.fill_(int(number[0]))
            context.synchronize()
            answer("done")
        elif word == "work":
            for _ in range(int(number[0])):
                memory.fill_(7)
            answer("begun")
        elif word == "sum":
            answer(str(int(memory.long().sum())))
        else:
            begun = time.perf_counter_ns()
            clock.begin()
            clock.end()
            context.synchronize()
            answer(f"{clock.elapsed_ns()} {time.perf_counter_ns() - begun}")
    return 0


def answer(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
