"""A line to a machine of Modal's with one GPU, which is started for the search and released with it.

Needs `pip install ksearch-async[modal]` and an account. It never ran against a real account; everything behind the
package's calls is tested. One container only, so that candidate and reference are always timed on the same GPU.

- `gpu_of(device: str) -> str | None`: of `modal` or `modal:H200`; null: the device is another
- `require_modal(environment, home) -> None`, raises ConfigError
- `open_modal(gpu: str) -> AsyncContextManager[Line]`
"""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from messages.base import ConfigError, EvaluatorError

if TYPE_CHECKING:
    from evaluators.remote.far import Far
    from evaluators.remote.near import Line

GPU = "H100"
_IMAGE = "nvidia/cuda:13.0.1-devel-ubuntu24.04"
_PACKAGES = ("torch==2.13.0", "triton==3.7.1", "msgspec", "anyio", "ninja")
_LONGEST_S = 3600
_AT_ONCE = 8
_STORE = "/tmp/ksearch"  # noqa: S108 - of a container that nobody else is in

_far: list[Far] = []
"""The container's far side, made by its first call."""


def gpu_of(device: str) -> str | None:
    """Return the GPU that `modal` or `modal:GPU` requests; null for other devices."""
    kind, _, gpu = device.partition(":")
    return (gpu or GPU) if kind == "modal" else None


def require_modal(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> None:
    """Check that the host has Modal's package and an account's token.

    Args:
        environment: may contain a token.
        home: folder of a `.modal.toml` that may contain one; None: the user's.

    Raises:
        ConfigError: something is missing; the text says how to get it.
    """
    if find_spec("modal") is None:
        raise ConfigError("Modal's package is not there: pip install 'ksearch-async[modal]'")
    has_token = {"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET"} <= environment.keys()
    file = Path(environment.get("MODAL_CONFIG_PATH") or (home or Path.home()) / ".modal.toml")
    if not has_token and not file.is_file():
        raise ConfigError(
            "no account of Modal's is set up here: run 'modal setup', or set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET"
        )


async def answer_in_container(request: bytes) -> bytes:
    """Answer a request in Modal's container, with its one GPU."""
    if not _far:
        from evaluators.remote.far import open_far  # noqa: PLC0415 - the near side needs none of it

        os.makedirs(_STORE, exist_ok=True)  # noqa: PTH103 - nothing else runs there yet
        _far.append(open_far(Path(_STORE), "cuda:0"))
    return await _far[0].answer(request)


@asynccontextmanager
async def open_modal(gpu: str = GPU) -> AsyncIterator[Line]:
    """Run a Modal app while this context is open.

    Args:
        gpu: Modal's name: `H100!` means this and no newer one.

    Raises:
        ConfigError: the package or an account is missing.
        EvaluatorError: Modal refuses.
    """
    require_modal()
    modal = importlib.import_module("modal")
    image = (
        modal.Image.from_registry(_IMAGE, add_python="3.11")
        .pip_install(*_PACKAGES)
        .add_local_python_source("evaluators", "messages")
    )
    app = modal.App("ksearch-evaluator")
    limited = modal.concurrent(max_inputs=_AT_ONCE)(answer_in_container)
    function = app.function(image=image, gpu=gpu, timeout=_LONGEST_S, max_containers=1)(limited)
    try:
        async with app.run.aio():
            yield _ModalLine(function.remote.aio, modal.exception.Error)
    except modal.exception.Error as error:
        raise EvaluatorError(f"Modal: {error}") from error


class _ModalLine:
    """Calls a function of Modal's."""

    def __init__(self, call: Callable[[bytes], Awaitable[bytes]], failure: type[Exception]) -> None:
        self._call, self._failure = call, failure

    async def call(self, request: bytes) -> bytes:
        try:
            return await self._call(request)
        except self._failure as error:
            raise EvaluatorError(f"Modal: {error}") from error

    async def aclose(self) -> None:
        """Do nothing: the app ends with its context."""
