"""The bundled problems: fit to judge by, right by another way of computing them, and not to be had for less."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest
import torch
from torch.nn import functional

from evaluators.judge.data.families import DataSet
from evaluators.judge.intake.examining import examine, wrong_share
from evaluators.tasks import bundled_tasks
from messages.tasks import Tolerance
from tests.evaluators.tasks.problems.small import SIZES, doubles, given, module_of, small_problem

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Program: TypeAlias = Callable[[DataSet], Tensors]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Compute on one thread: the tensors are small, and threads that wait for one another are slow on a busy host."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", bundled_tasks())
def test_a_bundled_problem_is_fit_and_every_input_of_it_matters(name: str) -> None:
    intake = examine(small_problem(name), Tolerance())
    assert (intake.fitness, intake.findings) == ("fit", ())
    assert not [one.tensor for one in intake.influences if one.matters is False]


def tokens_of(pool: torch.Tensor, table: torch.Tensor, length: int) -> torch.Tensor:
    """Return what a sequence's pages hold, token by token."""
    page = pool.shape[1]
    return torch.stack([pool[int(table[token // page]), token % page] for token in range(length)])


def gqa_decode(data: DataSet, *, by_table: bool = True, to_the_end: bool = False) -> Tensors:
    q, keys, values, table, lengths = doubles(data)
    table = table if by_table else torch.arange(table.numel()).view(table.shape)
    out, logs = torch.empty_like(q), torch.empty(q.shape[:2], dtype=torch.float64)
    for sequence in range(len(q)):
        length = table.shape[1] * keys.shape[1] if to_the_end else int(lengths[sequence])
        k, v = (tokens_of(pool, table[sequence], length) for pool in (keys, values))
        for head in range(q.shape[1]):
            group = head * k.shape[1] // q.shape[1]
            scores = k[:, group] @ q[sequence, head] / math.sqrt(q.shape[2])
            out[sequence, head] = scores.softmax(0) @ v[:, group]
            logs[sequence, head] = scores.exp().sum().log()
    return out, logs


def mla_decode(data: DataSet, *, is_rotated: bool = True, divisor: float = 192) -> Tensors:
    q, q_rotary, latents, rotary_keys, table, lengths = doubles(data)
    out, logs = torch.empty_like(q), torch.empty(q.shape[:2], dtype=torch.float64)
    for sequence in range(len(q)):
        c, k = (tokens_of(pool, table[sequence], int(lengths[sequence])) for pool in (latents, rotary_keys))
        for head in range(q.shape[1]):
            scores = c @ q[sequence, head] + is_rotated * (k @ q_rotary[sequence, head])
            scores = scores / math.sqrt(divisor)
            out[sequence, head] = scores.softmax(0) @ c
            logs[sequence, head] = scores.exp().sum().log()
    return out, logs


def mla_prefill(data: DataSet, *, is_causal: bool = True, is_cut: bool = True) -> Tensors:
    q, latents, rotary_keys, starts, key_up, value_up = doubles(data)
    out = torch.empty(len(q), q.shape[1], key_up.shape[1], dtype=torch.float64)
    for token in range(len(q)):
        first = max(int(start) for start in starts if start <= token) if is_cut else 0
        last = token + 1 if is_causal else min(int(start) for start in starts if start > token)
        for head in range(q.shape[1]):
            k = torch.cat((latents[first:last] @ key_up[head].T, rotary_keys[first:last]), dim=1)
            weights = (k @ q[token, head] / math.sqrt(q.shape[2])).softmax(0)
            out[token, head] = weights @ (latents[first:last] @ value_up[head].T)
    return (out,)


def moe(data: DataSet, *, by_bias: bool = True, by_groups: bool = True) -> Tensors:
    logits, bias, x, x_scale, gate_up, gate_up_scale, down, down_scale = doubles(data)
    groups, chosen = int(SIZES["moe_fp8"]["groups"]), int(SIZES["moe_fp8"]["chosen"])
    of_each = logits.shape[1] // groups
    block = torch.ones(128, 128, dtype=torch.float64)
    first = [codes * scale.kron(block) for codes, scale in zip(gate_up, gate_up_scale, strict=True)]
    second = [codes * scale.kron(block) for codes, scale in zip(down, down_scale, strict=True)]
    tokens = x * x_scale.kron(block[:1])
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token in range(len(x)):
        scores = logits[token].sigmoid()
        ranked = (scores + bias if by_bias else scores).tolist()
        best = sorted(range(groups), key=lambda g: -sum(sorted(ranked[g * of_each : (g + 1) * of_each])[-2:]))
        there = [e for e in range(len(ranked)) if not by_groups or e // of_each in best[: groups // 2]]
        experts = sorted(there, key=lambda expert: -ranked[expert])[:chosen]
        total = sum(float(scores[expert]) for expert in experts)
        for expert in experts:
            gates, ups = (first[expert] @ tokens[token]).chunk(2)
            out[token] += 2.5 * float(scores[expert]) / total * (second[expert] @ (functional.silu(gates) * ups))
    return (out,)


def rotated(data: DataSet, *, by_position: bool = True) -> Tensors:
    q, k, cosines, sines, position = doubles(data)
    points = torch.complex(cosines, sines)[position if by_position else torch.arange(len(q))]
    turned = []
    for x in (q, k):
        half = x.shape[-1] // 2
        product = torch.complex(x[..., :half], x[..., half:]) * points[:, None]
        turned.append(torch.cat((product.real, product.imag), dim=-1))
    return tuple(turned)


def losses(data: DataSet, *, ignored: int = -100) -> Tensors:
    logits, target = doubles(data)
    logits.requires_grad_()
    target = target if ignored == -100 else target.clamp(min=0)
    loss = functional.cross_entropy(logits, target, reduction="none", ignore_index=ignored)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    return loss.detach(), gradient


def normed(data: DataSet, *, eps: float = 1e-5) -> Tensors:
    x, residual, weight = doubles(data)
    return functional.rms_norm(x + residual, weight.shape, weight, eps), x + residual


def triangle(data: DataSet, *, is_masked: bool = True, is_incoming: bool = True) -> Tensors:
    z, mask, *state = doubles(data)
    weight_in, bias_in, factors, factor_gates, gate, weight_out, bias_out, out = state
    z = functional.layer_norm(z, z.shape[-1:], weight_in, bias_in)
    made = (z @ factors.T) * (z @ factor_gates.T).sigmoid()
    a, b = (made * (mask[..., None] if is_masked else 1.0)).chunk(2, dim=-1)
    size = z.shape[1]
    sums = torch.zeros(a.shape, dtype=torch.float64)
    for k in range(size):
        sums += a[:, k, :, None] * b[:, k, None] if is_incoming else a[:, :, k, None] * b[:, None, :, k]
    return ((z @ gate.T).sigmoid() * (functional.layer_norm(sums, sums.shape[-1:], weight_out, bias_out) @ out.T),)


E4M3 = sorted(
    (mantissa / 8 + (exponent > 0)) * 2.0 ** (max(exponent, 1) - 7)
    for exponent in range(16)
    for mantissa in range(8)
    if (exponent, mantissa) != (15, 7)
)
"""The numbers of the format that are not negative, by its definition; the place of each is its code."""


def mxfp8(data: DataSet, *, is_rounded: bool = True) -> Tensors:
    (x,) = doubles(data)
    codes = torch.empty(x.shape, dtype=torch.uint8)
    scales = torch.empty(x.shape[0], x.shape[1] // 32, dtype=torch.uint8)
    for row in range(x.shape[0]):
        for block in range(x.shape[1] // 32):
            values = x[row, 32 * block : 32 * block + 32].tolist()
            exponent = math.floor(math.log2(max(map(abs, values)))) - 8
            scales[row, block] = exponent + 127
            for place, value in enumerate(values):
                wanted = min(abs(value) / 2.0**exponent, 448.0)
                nearest = min(range(len(E4M3)), key=lambda code: (abs(E4M3[code] - wanted), code % 2))
                below = max(code for code in range(len(E4M3)) if E4M3[code] <= wanted)
                sign = 128 if math.copysign(1.0, value) < 0 else 0
                codes[row, 32 * block + place] = sign + (nearest if is_rounded else below)
    return codes, scales


def sorted_rows(data: DataSet, *, is_descending: bool = True) -> Tensors:
    (x,) = data.inputs
    k = int(SIZES["top_k"]["k"])
    order = x.argsort(dim=-1, descending=True)[:, :k]
    order = order if is_descending else order.sort(dim=-1).values
    return x.gather(1, order), order


def sampled(data: DataSet, *, k_of: int = 0, is_greedy: bool = False) -> Tensors:
    logits, k, uniform = doubles(data)
    tokens = []
    for row in range(len(logits)):
        count = k_of or int(k[row])
        kept = sorted(logits[row].argsort(descending=True)[:count].tolist())
        weights = [math.exp(float(logits[row, word])) for word in kept]
        point, at = float(uniform[row]) * sum(weights), 0
        while at < len(kept) - 1 and sum(weights[: at + 1]) <= point:
            at += 1
        tokens.append(int(logits[row].argmax()) if is_greedy else kept[at])
    return (torch.tensor(tokens),)


RIGHT: dict[str, Program] = {
    "cross_entropy": losses,
    "mla_prefill": mla_prefill,
    "moe_fp8": moe,
    "mxfp8_quantisation": mxfp8,
    "paged_gqa_decode": gqa_decode,
    "paged_mla_decode": mla_decode,
    "rmsnorm_residual": normed,
    "rope": rotated,
    "top_k": sorted_rows,
    "top_k_sampling": sampled,
    "triangle_incoming": triangle,
}
WRONG: dict[str, tuple[str, Program]] = {
    "counts tokens that do not count": ("cross_entropy", lambda data: losses(data, ignored=-1)),
    "sees later tokens": ("mla_prefill", lambda data: mla_prefill(data, is_causal=False)),
    "sees other prompts": ("mla_prefill", lambda data: mla_prefill(data, is_cut=False)),
    "chooses without the bias": ("moe_fp8", lambda data: moe(data, by_bias=False)),
    "chooses from all groups": ("moe_fp8", lambda data: moe(data, by_groups=False)),
    "cuts off instead of rounding": ("mxfp8_quantisation", lambda data: mxfp8(data, is_rounded=False)),
    "reads pages in order": ("paged_gqa_decode", lambda data: gqa_decode(data, by_table=False)),
    "reads to the end": ("paged_gqa_decode", lambda data: gqa_decode(data, to_the_end=True)),
    "leaves the rotated part out": ("paged_mla_decode", lambda data: mla_decode(data, is_rotated=False)),
    "scales by the absorbed size": ("paged_mla_decode", lambda data: mla_decode(data, divisor=40)),
    "has another epsilon": ("rmsnorm_residual", lambda data: normed(data, eps=1.0)),
    "takes places for positions": ("rope", lambda data: rotated(data, by_position=False)),
    "is not sorted": ("top_k", lambda data: sorted_rows(data, is_descending=False)),
    "is greedy": ("top_k_sampling", lambda data: sampled(data, is_greedy=True)),
    "keeps too many": ("top_k_sampling", lambda data: sampled(data, k_of=12)),
    "leaves the mask out": ("triangle_incoming", lambda data: triangle(data, is_masked=False)),
    "takes outgoing edges": ("triangle_incoming", lambda data: triangle(data, is_incoming=False)),
}


def as_answered(made: Tensors, data: DataSet) -> Tensors:
    """Return outputs in the dtypes of the task, as a candidate would."""
    return tuple(one.to(allowed.dtype) for one, allowed in zip(made, data.allowed, strict=True))


@pytest.mark.parametrize("name", RIGHT)
def test_a_reference_gives_what_another_way_of_computing_it_gives(name: str) -> None:
    data = given(name)
    assert wrong_share(as_answered(RIGHT[name](data), data), data) == 0.0


@pytest.mark.quiet
@pytest.mark.parametrize("what", WRONG)
def test_a_program_that_leaves_something_out_is_wrong(what: str) -> None:
    name, program = WRONG[what]
    torch.manual_seed(0)  # of few tokens, now and then all count
    data = given(name)
    assert wrong_share(as_answered(program(data), data), data) > 0.0


def test_either_of_two_equal_elements_may_be_among_the_largest() -> None:
    check = module_of("top_k").check_outputs
    x = torch.tensor([[3.0, 1.0, 2.0, 2.0]])
    for second in (2, 3):
        assert check(x, (torch.tensor([[3.0, 2.0]]), torch.tensor([[0, second]]))) == ""
    assert "twice" in check(x, (torch.tensor([[3.0, 3.0]]), torch.tensor([[0, 0]])))
    assert "outside" in check(x, (torch.tensor([[3.0, 2.0]]), torch.tensor([[0, 4]])))
    assert "at its place" in check(x, (torch.tensor([[3.0, 2.0]]), torch.tensor([[0, 1]])))
    assert "not the largest" in check(x, (torch.tensor([[3.0, 1.0]]), torch.tensor([[0, 1]])))


def test_a_random_number_at_a_border_may_mean_either_word() -> None:
    check = module_of("top_k_sampling").check_outputs
    logits, k = torch.zeros(1, 4), torch.tensor([4])
    for token in (1, 2):
        assert check(logits, k, torch.tensor([0.5]), torch.tensor([token])) == ""
    assert "another token" in check(logits, k, torch.tensor([0.5]), torch.tensor([0]))
    assert "outside" in check(logits, k, torch.tensor([0.5]), torch.tensor([-1]))
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0]])
    assert "none of the k" in check(logits, torch.tensor([2]), torch.tensor([0.001]), torch.tensor([1]))


def test_no_token_of_the_mixture_is_between_two_experts() -> None:
    module = module_of("moe_fp8")
    sizes = SIZES["moe_fp8"]
    for _ in range(5):
        logits, bias, *_ = module.get_inputs(**sizes)
        assert bool((module._margins(logits, bias, sizes["groups"], sizes["chosen"]) >= 1e-4).all())


def test_every_code_of_the_format_is_one_number() -> None:
    numbers = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).double().tolist()
    assert numbers == E4M3
