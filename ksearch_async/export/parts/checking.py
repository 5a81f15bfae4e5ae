"""Part of exported modules: the self-test, which compares the kernel with the reference that it was judged by.

The comparison is the judge's. An element is right if `|out - ref64| <= rtol * |ref64| + atol`. Where the task's
tolerance fixes no `atol`, it is `max(16 * e, 4 * eps) * scale`: `e` is what the reference itself loses in its own
dtype, relative to `scale`, the largest value of the element's row (of the whole tensor if rows are shorter than 16).
Infinities and NaNs must be where the reference has them; integers and booleans are exact.
"""

from __future__ import annotations

import copy
import hashlib
import linecache
import random
import secrets
import sys
from collections.abc import Sequence
from types import ModuleType

import torch

from ksearch_async.export.parts.calling import run
from ksearch_async.export.parts.facts import ARGUMENTS, BOUNDS, OUTPUTS, REFERENCE, TITLE
from ksearch_async.export.parts.language import home_device


def load_text(what: str, text: str) -> ModuleType:
    """Return the module of a text; Triton and tracebacks find its lines.

    Args:
        what: the tensor's name: `kernel`, `reference`.
        text: a Python program.
    """
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).hexdigest()
    name = f"ksearch_exported_{what}_{digest}"
    file = f"<{what} of {TITLE}, {digest}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = sys.modules[name] = ModuleType(name)
    exec(compile(text, file, "exec"), module.__dict__)  # noqa: S102 - the text is this module's own
    return module


def state_of(model: torch.nn.Module) -> list[torch.Tensor]:
    """Return what the kernel is given behind the arguments of `forward`: parameters, buffers, other tensors."""
    return [tensor for _, tensor in _named_state(model)]


def state_names(model: torch.nn.Module) -> list[str]:
    """Return the paths of what `state_of` returns."""
    return [name for name, _ in _named_state(model)]


def _named_state(model: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    plain = [
        (f"{path}.{name}" if path else name, value)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, torch.Tensor)
    ]
    return [*model.named_parameters(), *model.named_buffers(), *plain]


def self_test(seed: int | None = None) -> bool:
    """Compare the kernel with the reference on random inputs, print what was compared, and say whether it agrees.

    Args:
        seed: of the first call; null: a fresh one.
    """
    device = home_device()
    first = secrets.randbelow(1 << 31) if seed is None else seed
    reference = load_text("reference", REFERENCE)
    with torch.no_grad():
        model = make_model(reference, first, device)
        _tell("reference", f"{TITLE}, by PyTorch {torch.__version__} on {device}")
        agreed = [_agrees(reference, model, first + number, device, perturbed=number == 3) for number in range(4)]
    _tell("passed" if all(agreed) else "FAILED", f"{sum(agreed)} of {len(agreed)} calls agree with the reference")
    return all(agreed)


def _agrees(reference: ModuleType, model: torch.nn.Module, seed: int, device: torch.device, *, perturbed: bool) -> bool:
    """Compare one call."""
    inputs = _inputs_of(reference, seed, device)
    if perturbed:
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.copy_(parameter + 0.1 * parameter.abs().mean() * torch.randn_like(parameter))
    native = outputs_of(model(*inputs))
    expected = _expected(model, inputs, native)
    given = [*(value for value in inputs if isinstance(value, torch.Tensor)), *state_of(model)]
    before = [tensor.clone() for tensor in given]
    outputs = run(tuple(given))
    where = f"seed {seed}{', other parameters' if perturbed else ''}"
    agreed = True
    for (name, _, _), out, exact, own, bounds in zip(OUTPUTS, outputs, expected, native, BOUNDS, strict=True):
        wrong, error, ratio = compare(out, exact, own, bounds)
        agreed &= not wrong
        said = f"largest error {error:.3g}, {ratio:.3g} of the tolerance"
        _tell(
            "wrong" if wrong else "agrees",
            f"{where}: {name}: {f'{wrong} of {out.numel()} elements, ' if wrong else ''}{said}",
        )
    for (name, _, _), now, then in zip(ARGUMENTS, given, before, strict=True):
        if not torch.equal(now, then) and not bool(then.isnan().any()):
            agreed = False
            _tell("wrong", f"{where}: the kernel changed its input {name}")
    return agreed


def make_model(reference: ModuleType, seed: int, device: torch.device) -> torch.nn.Module:
    """Return the reference's model as it is judged: in evaluation mode where it is random in training mode."""
    torch.manual_seed(seed)
    random.seed(seed)
    model: torch.nn.Module = reference.Model(*reference.get_init_inputs()).to(device)
    inputs = _inputs_of(reference, seed, device)
    pairs = zip(outputs_of(model(*inputs)), outputs_of(model(*inputs)), strict=True)
    if not all(torch.allclose(one, other, rtol=1e-3, atol=1e-5, equal_nan=True) for one, other in pairs):
        model.eval()
    return model


def _inputs_of(reference: ModuleType, seed: int, device: torch.device) -> list[torch.Tensor | float]:
    torch.manual_seed(seed)
    random.seed(seed)
    return [
        value.detach().contiguous().to(device) if isinstance(value, torch.Tensor) else value
        for value in reference.get_inputs()
    ]


def _expected(
    model: torch.nn.Module, inputs: Sequence[torch.Tensor | float], native: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the reference in float64, or as it is where it has no such form."""
    wide = [
        value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs
    ]
    try:
        outputs = outputs_of(copy.deepcopy(model).double()(*wide))
    except (RuntimeError, TypeError, ValueError):
        return list(native)
    stayed = all(out.dtype == torch.float64 for out in outputs if out.is_floating_point())
    return outputs if stayed else list(native)


def outputs_of(result: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return what a model returned as a list of dense tensors."""
    outputs = [result] if isinstance(result, torch.Tensor) else result
    return [output.detach().contiguous() for output in outputs]


def _tell(word: str, text: str) -> None:
    print(f"{word:<10} {text}", flush=True)  # noqa: T201 - it is a program


def compare(
    out: torch.Tensor, expected: torch.Tensor, native: torch.Tensor, bounds: tuple[float, float | None, bool]
) -> tuple[int, float, float]:
    """Return how many elements are wrong, the largest error, and the largest error over what is allowed.

    Args:
        out: the kernel's output.
        expected: the reference in float64 where that exists.
        native: the reference in its own dtype.
        bounds: see `BOUNDS`.
    """
    if not native.dtype.is_floating_point:
        count = int(((out != expected) & (out != native)).sum())
        largest = (out.double() - expected.double()).abs().max().item() if count else 0.0
        return count, largest, float("inf") if count else 0.0
    found, reference, own = (_as_rows(tensor).double() for tensor in (out, expected, native))
    allowed = _allowed(reference, own, native.dtype, bounds)
    error = (found - reference).abs()
    finite = reference.isfinite() & found.isfinite()
    same = (found == reference) | (found.isnan() & reference.isnan())
    wrong = torch.where(finite, ~(error <= allowed), ~same)
    error = torch.where(finite, error, 0.0)
    return int(wrong.sum()), error.max().item(), (error / allowed.clamp_min(1e-300)).max().item()


def _allowed(
    reference: torch.Tensor, own: torch.Tensor, dtype: torch.dtype, bounds: tuple[float, float | None, bool]
) -> torch.Tensor:
    rtol, atol, is_either = bounds
    relative = reference.abs() * rtol
    if atol is None:
        largest = torch.where(reference.isfinite(), reference, 0.0).abs().amax(dim=1, keepdim=True)
        scale = largest.clamp_min(max(largest.max().item() * 2.0**-10, 1e-300))
        lost = ((own - reference).abs().nan_to_num(0.0, 0.0, 0.0) / scale).max().item()
        limits = torch.finfo(dtype)
        absolute = (scale * max(16.0 * lost, 4.0 * limits.eps)).clamp_min(limits.tiny)
    else:
        absolute = torch.full_like(reference[:, :1], atol)
    return torch.maximum(relative, absolute) if is_either else relative + absolute


def _as_rows(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 0 or tensor.shape[-1] < 16:
        return tensor.reshape(1, -1)
    return tensor.reshape(-1, tensor.shape[-1])
