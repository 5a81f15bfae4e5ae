"""The command that serves the offline model, as a process of its own."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.ksearch_async.test_cli import ksearch

QUESTION = {"model": "offline-rules", "messages": [{"role": "user", "content": "How fast can it be?"}]}


@contextmanager
def served(*words: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command; it is killed if the test did not end it."""
    command = [sys.executable, "-m", "ksearch_async", "offline-model", "--port", "0", *words]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_it_says_where_it_listens_answers_and_tells_what_it_was_asked_when_it_ends(tmp_path: Path) -> None:
    with served("--mistakes", "1", "--mistake-kinds", "empty", "prose", cwd=tmp_path) as process:
        base_url = first_line(process).removeprefix("listening on ")
        answer = httpx.post(f"{base_url}/chat/completions", json=QUESTION, headers={"X-Client-Request-Id": "r1-w1"})
        stats = httpx.get(f"{base_url.removesuffix('/v1')}/stats").json()
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert answer.status_code == 200
    assert (stats["requests"], stats["answered"]) == (1, 1)
    assert sum(stats["mistakes"].values()) == 1
    assert out == ""
    assert "requests   1, 1 answered; at most 1 at once" in said
    assert "no request id was paid for twice" in said


def test_json_is_one_object_at_the_start_and_one_at_the_end(tmp_path: Path) -> None:
    with served("--json", "--server-error", "1", cwd=tmp_path) as process:
        started = json.loads(first_line(process))
        answer = httpx.post(f"{started['base_url']}/chat/completions", json=QUESTION)
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=20)
    assert started["model"] == "offline-rules"
    assert answer.status_code == 500
    assert json.loads(out)["faults"] == {"server_error": 1}
    assert (process.returncode, said) == (0, "")


def test_requests_that_hang_do_not_keep_it_from_ending(tmp_path: Path) -> None:
    with served("--hang", "1", cwd=tmp_path) as process:
        base_url = first_line(process).removeprefix("listening on ")
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{base_url}/chat/completions", json=QUESTION, timeout=0.2)
        address = base_url.removeprefix("http://").removesuffix("/v1").split(":")
        with socket.create_connection((address[0], int(address[1]))) as waiting:
            body = json.dumps(QUESTION)
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            waiting.sendall((head + body).encode())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--faults", "0.3"], "add up to 1.5"),
        (["--cut", "-0.1"], "--cut: expected a share from 0 to 1, not -0.1"),
        (["--mistakes", "2"], "--mistakes: expected a share"),
        (["--each-mistake", "0.2"], "--each-mistake: the mistakes of one role add up to 2"),
        (["--each-mistake", "0.1", "--mistakes", "0.1"], "--mistakes and --each-mistake contradict each other"),
        (["--mistake-kinds", "spelling"], "spelling"),
        (["--latency", "-1"], "--latency: expected seconds"),
        (["--port", "70000"], "--port: expected 0 to 65535"),
        (["--concurrency-limit", "0"], "--concurrency-limit"),
    ],
)
def test_what_it_cannot_do_is_bad_input(words: list[str], said: str, tmp_path: Path) -> None:
    done = ksearch("offline-model", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr


def test_a_port_that_is_taken_is_bad_input(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = ksearch("offline-model", "--port", str(port), cwd=tmp_path)
    assert done.returncode == 2
    assert f"cannot listen on port {port}: {os.strerror(errno.EADDRINUSE)}" in done.stderr
    assert "hint: --port 0 takes a free one" in done.stderr
