"""`ksearch doctor`: checks this machine, and with `--model` an endpoint."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from evaluators.hardware.target import probe_target
from ksearch_async.cli import exits
from ksearch_async.cli.flags import JsonFlag
from ksearch_async.runs.folder import check_writable
from ksearch_async.settings.run_config import API_KEY_VARIABLES, runs_dir_or_default
from ksearch_async.views.terminal import put, put_json
from messages.base import KsearchError

_PROBE_TIMEOUT_S = 10.0


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    status: str
    """`ok`, `note` (a search works without it) or `missing`."""
    detail: str


def doctor_command(
    *,
    model: str | None = None,
    base_url: str | None = None,
    runs_dir: Path | None = None,
    as_json: JsonFlag = False,
) -> int:
    """Check what a search needs on this machine, or what a model's endpoint can do.

    Args:
        model: Ask this model a few small questions, and remember for later runs what its endpoint can do. The machine
            is not checked then.
        base_url: Address of the model's endpoint. [env: KSEARCH_BASE_URL]
        runs_dir: Folder in which runs would be written. [env: KSEARCH_RUNS_DIR] [default: runs]
        as_json: Print one JSON object.
    """
    address = base_url or os.environ.get("KSEARCH_BASE_URL")
    if model is not None:
        from ksearch_async.cli.probing import probe_model  # noqa: PLC0415 - openai takes a third of a second to import

        return probe_model(model, address, as_json=as_json)
    findings = [
        *_machine(),
        _looked("compiler", _compiler, otherwise="missing"),
        _looked("nvcc", _cuda_compiler, otherwise="note", without="no kernels in CUDA: "),
        _looked("interpreter", _interpreter, otherwise="note", without="no kernels in Triton: "),
        *_packages(),
        *_isolation(),
        _model(address),
        _runs_dir(runs_dir_or_default(runs_dir)),
    ]
    healthy = all(finding.status != "missing" for finding in findings)
    if as_json:
        put_json({"healthy": healthy, "findings": findings})
    else:
        for finding in findings:
            put(f"{finding.status:<8} {finding.name:<14} {finding.detail}")
    return exits.FOUND if healthy else exits.INFRASTRUCTURE


def _machine() -> Iterator[Finding]:
    yield Finding(name="python", status="ok", detail=f"{platform.python_version()} on {platform.platform()}")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    yield Finding(name="machine", status="ok", detail=f"{cores} cores, {memory_gib:.1f} GiB memory")
    yield _gpu()


def _gpu() -> Finding:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Finding(name="gpu", status="note", detail="no nvidia-smi found; kernels in C++ need no GPU")
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=True)  # noqa: S603 - a fixed command
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name="gpu", status="note", detail=f"nvidia-smi failed: {error}")
    names = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if not names:
        return Finding(name="gpu", status="note", detail="none; kernels in C++ need no GPU")
    return Finding(name="gpu", status="ok", detail=f"{', '.join(names)}; --device cuda:0 runs candidates there")


def _compiler() -> str:
    target = probe_target("cpp")
    return f"{target.toolchain}, -march={target.march}, {target.device}"


def _cuda_compiler() -> str:
    from evaluators.languages.cuda.toolchain import find_nvcc  # noqa: PLC0415 - few hosts have it

    nvcc = find_nvcc()
    return f"{nvcc.release}, for {', '.join(nvcc.architectures)}"


def _interpreter() -> str:
    return f"{probe_target('triton').toolchain}: kernels in Triton are checked, not timed"


def _looked(name: str, look: Callable[[], str], *, otherwise: str, without: str = "") -> Finding:
    try:
        return Finding(name=name, status="ok", detail=look())
    except KsearchError as error:
        return Finding(name=name, status=otherwise, detail=f"{without}{error}")


def _packages() -> Iterator[Finding]:
    for name, needed in (("torch", True), ("triton", False), ("apache-tvm-ffi", True), ("openai", True)):
        try:
            yield Finding(name=name, status="ok", detail=version(name))
        except PackageNotFoundError:
            yield Finding(name=name, status="missing" if needed else "note", detail="not installed")


def _isolation() -> Iterator[Finding]:
    from evaluators.process.sandbox.probe import WITHOUT, probe_layers  # noqa: PLC0415 - needs Linux

    try:
        host = probe_layers()
    except KsearchError as error:
        yield Finding(name="isolation", status="note", detail=str(error))
        return
    lacking = host.missing_for_strict
    strict = f"--isolation strict would refuse: it lacks {', '.join(lacking)}" if lacking else "enough for strict"
    yield Finding(
        name="isolation", status="note" if lacking else "ok", detail=f"{', '.join(host.layers) or 'none'}; {strict}"
    )
    for name, why in host.missing.items():
        yield Finding(name="isolation", status="note", detail=f"no {name} ({why}): {WITHOUT[name]}")


def _model(address: str | None) -> Finding:
    has_key = any(os.environ.get(name) for name in API_KEY_VARIABLES)
    key = "a key is set" if has_key else f"no key is set ({' or '.join(API_KEY_VARIABLES)})"
    if address is None:
        rules = "without --model the built-in rules plan and write; they are not a language model"
        return Finding(name="model", status="note", detail=f"{key}; {rules}")
    import httpx  # noqa: PLC0415 - only where an endpoint is asked about

    try:
        status_code = httpx.get(f"{address.rstrip('/')}/models", timeout=_PROBE_TIMEOUT_S).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Finding(name="model", status="missing", detail=f"{address} cannot be reached: {error}")
    return Finding(name="model", status="ok", detail=f"{address} answers (HTTP {status_code}); {key}")


def _runs_dir(folder: Path) -> Finding:
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        check_writable(existing)
    except OSError as error:
        return Finding(name="runs", status="missing", detail=f"cannot write to {str(existing)!r}: {error.strerror}")
    return Finding(name="runs", status="ok", detail=f"{str(folder.absolute())!r} can be written")
