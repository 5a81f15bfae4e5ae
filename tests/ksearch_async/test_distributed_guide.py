"""The guide to many hosts: what it tells people to type is understood, and its main steps do what it says."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from ksearch_async.cli import app
from tests.ksearch_async.test_guides import GUIDES, commands

GUIDE = (GUIDES / "distributed.md").read_text()
README = (GUIDES.parents[1] / "README.md").read_text().partition("## Many GPUs, many hosts")[2].partition("\n## ")[0]
PATIENCE_S = 90
SCRAPE = """
import json, urllib.request
for line in open("evaluator.log"):
    if "metrics served" in line:
        print(urllib.request.urlopen(json.loads(line)["url"]).read().decode())
"""
"""Reads metrics where a log says that they are."""


def block(*, having: str) -> list[str]:
    """Return the lines to type of the first block that has this text."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
    found = next(each for each in blocks if having in each)
    return [line.removeprefix("$ ") for line in found.splitlines()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def typed(lines: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a shell; what they leave in the background is asked to end, and waited for."""
    script = "\n".join(["trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT", "set -e", *lines])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    known = {key: value for key, value in os.environ.items() if not key.startswith("KSEARCH_")}
    done = subprocess.run(
        ["bash", "-c", script],  # noqa: S607 - as people do
        cwd=cwd,
        env={**known, "PATH": path, "HOME": str(cwd), **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def until_it_answers(command: str) -> str:
    """Return a line that waits for a server that was just started."""
    return f"for _ in $(seq 100); do {command} >/dev/null 2>&1 && break; sleep 0.1; done"


@pytest.mark.parametrize("command", dict.fromkeys([*commands(GUIDE), *commands(README)]))
def test_every_command_is_understood(command: str) -> None:
    for part in command.partition("  #")[0].strip().removesuffix(" &").split(" & "):
        first, *words = shlex.split(part)
        assert first == "ksearch"
        app.parse_args(words, exit_on_error=False, print_error=False)


@pytest.mark.long
@pytest.mark.nats
def test_one_host_and_several_processes_search_as_the_guide_says(tmp_path: Path) -> None:
    """On simulated devices: measuring takes its time."""
    port = str(free_port())
    serve, address, coder, builder, evaluator, nodes, run = block(having="ksearch coder --slots 8 &")
    done = typed(
        [
            serve.replace("serve", f"serve --port {port}"),
            address.replace("4222", port),
            until_it_answers("ksearch nodes"),
            coder,
            builder.replace("builder", "builder --device simulated"),
            evaluator.replace("cpu", "simulated:0.1"),
            until_it_answers("ksearch nodes | grep -q '^evaluator.* ready '"),
            nodes,
            f"{run} --arch simulated || test $? -eq 1",
        ],
        tmp_path,
        KSEARCH_MAX_ROUNDS="4",
    )
    assert "ended: its rounds are used up (4 of 4)" in done.stdout
    assert all(re.search(rf"^{role} ", done.stdout, re.MULTILINE) for role in ("coder", "builder", "evaluator"))
    journal = (tmp_path / "runs" / "second" / "journal.jsonl").read_text()
    for role in ("coder", "builder", "evaluator"):
        assert f'"worker":"{role}-' in journal, "a process of its own did it"


@pytest.mark.long
@pytest.mark.nats
def test_a_host_with_its_roles_file_is_let_in_as_the_guide_says(tmp_path: Path) -> None:
    port = str(free_port())
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    kept = tmp_path / ".config" / "ksearch"
    kept.mkdir(parents=True)
    authority.cert_pem.write_to_path(kept / "ca.pem")
    here = {"0.0.0.0": "127.0.0.1", "search.example.org": "127.0.0.1", "4222": port}  # noqa: S104 - is replaced
    server, node = block(having="ksearch nats init --config"), block(having="KSEARCH_NATS_CA")
    server[1] = f"{server[1]} --port {port} &"
    node[-1] += " --device simulated --metrics-port 0 --log-json 2> evaluator.log &"
    look = f"KSEARCH_NATS_CREDENTIALS={tmp_path}/nats-config/credentials/watcher ksearch nodes --json"
    lines = [
        "export KSEARCH_NATS_CA=~/.config/ksearch/ca.pem",
        *server[:2],
        until_it_answers(server[2]),
        server[2],
        f"cp nats-config/credentials/evaluator {kept}",
        *node,
        until_it_answers(f"{look} | grep -q ready"),
        look,
        f"python -c '{SCRAPE}'",
    ]
    for there, replaced in here.items():
        lines = [line.replace(there, replaced) for line in lines]
    done = typed(lines, tmp_path)
    assert '"role":"evaluator"' in done.stdout.replace(" ", "")
    assert 'ksearch_slots{role="evaluator"} 2.0' in done.stdout
    told = [json.loads(line) for line in (tmp_path / "evaluator.log").read_text().splitlines()]
    assert all(line["worker"].startswith("evaluator-") for line in told if line["event"] in ("proved", "ready"))
    password = re.search(r'password = "(.*)"', (kept / "evaluator").read_text())
    assert password is not None
    assert password[1] not in done.stdout + done.stderr + (tmp_path / "evaluator.log").read_text()
