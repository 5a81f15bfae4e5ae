"""Makes the calls of a TritonBench test anew, with a candidate's functions. This text ends candidates' files, too.

So it needs nothing but torch. `make_calls` takes what `tracing.py` has recorded and returns plain tensors.
"""

# mypy: allow-untyped-defs, allow-untyped-calls
# ruff: noqa: ANN001, ANN201, ANN202 - candidates need no annotations

import torch

# What follows is the part that candidates get.


def make_calls(calls, functions):
    """Return the tensors and numbers that the calls return, and the arguments that they write to, all as tensors."""
    device = next((value.device for value in _leaves(calls)), torch.device("cpu"))
    outputs: list[torch.Tensor] = []
    for call in calls:
        writes = call["writes"]
        arguments = [_meant(value, place in writes, device) for place, value in enumerate(call["arguments"])]
        options = {name: _meant(value, name in writes, device) for name, value in call["options"].items()}
        if call["seed"] is not None:
            torch.manual_seed(call["seed"])
        returned = functions[call["function"]](*arguments, **options)
        written = [options[place] if isinstance(place, str) else arguments[place] for place in writes]
        found = [_plain(value, device) for value in _leaves([returned, written], numbers=True)]
        # What the gold leaves unwritten in its own memory may be anything.
        for place, unwritten in call["unwritten"]:
            found[place] = found[place].masked_fill(unwritten, 0)
        outputs.extend(found)
    return outputs


def _meant(value, is_written, device):
    if isinstance(value, torch.Tensor):
        return value.clone() if is_written else value
    if isinstance(value, (list, tuple)):
        return type(value)(_meant(item, is_written, device) for item in value)
    if not isinstance(value, dict):
        return value
    inner = {key: _meant(item, is_written, device) for key, item in value.items()}
    return _named(inner, device) if "as" in inner else inner


def _named(value, device):
    match value["as"]:
        case "device":
            return torch.device(device)
        case "float":
            return float(value["name"])
        case "complex":
            return torch.view_as_complex(value["parts"])
        case "bytes":
            return value["bytes"].view(getattr(torch, value["name"]))
        case "empty":
            return torch.empty(value["shape"], dtype=getattr(torch, value["name"]), device=device)
        case _:
            return getattr(torch, value["name"])


def _leaves(value, *, numbers=False):
    if isinstance(value, torch.Tensor):
        if value.numel():
            yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, numbers=numbers)
    elif numbers and isinstance(value, (bool, int, float)):
        yield torch.tensor(value)


def _plain(value, device):
    value = value.detach().to(device)
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.float() if value.dtype.itemsize == 1 and value.is_floating_point() else value
