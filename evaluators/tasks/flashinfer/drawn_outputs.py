"""Says whether outputs that are drawn at random, or picked in any order, are right. Travels with tasks.

It runs in the judge. Sampling from probabilities (`top_k`: only the k likeliest tokens of a row; `top_p`: of what is
left, the likeliest until more than that part is reached) has no one right answer. Two things are asked of it:

- each token must be one that may be drawn at all (`outside`): exact for `top_k`, all of several equally likely tokens
  at its border being right; for `top_p` up to the rounding of sums in float32;
- over many calls tokens must be drawn as often as their probabilities say (`positions`): each token is turned into its
  place in [0, 1) of the row's cumulative distribution, at random within the token's own share (Rosenblatt's transform).
  Whatever the rows are, the places of right draws are independent and uniform, so that those of all rows and calls are
  counted together. The judge does the counting.

- `outside(probs, samples, *, top_k, top_p) -> str`: empty where all are right
- `positions(probs, samples, *, top_k, top_p) -> dict[str, torch.Tensor]`
- `wrong_indices(…) -> str`: of an indexer that names the keys with the largest scores, in any order
"""

from __future__ import annotations

import torch

SLACK = 2.0**-13
"""Of a row's mass: sums of a hundred thousand float32 numbers may be off by so much, and a token at the border with
them."""
_LANES = 32
_SCALE_BYTES = 4
_LOST = 2.0**-16
"""Of the sum of all magnitudes: what float32 loses at most in sums of 128 and 64 numbers, in whatever order."""


def outside(
    probs: torch.Tensor,
    samples: torch.Tensor,
    *,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
) -> str:
    """Say which token may not be drawn; nothing if all may.

    Args:
        probs: (rows, tokens), each row adds up to 1.
        samples: (rows,), integers.
        top_k: (rows,), integers; not above 0, or above the number of tokens: all may be drawn.
        top_p: (rows,); 0 or less: only the likeliest token, 1 or more: all.
    """
    for row, token in enumerate(samples.tolist()):
        if not 0 <= token < probs.shape[1]:
            return f"row {row}: {token} is no token; there are 0 to {probs.shape[1] - 1}"
        k = 0 if top_k is None else int(top_k[row])
        p = 1.0 if top_p is None else float(top_p[row])
        if said := _against(probs[row].double(), token, k, p):
            return f"row {row}: {said}"
    return ""


def positions(
    probs: torch.Tensor,
    samples: torch.Tensor,
    *,
    top_k: torch.Tensor | None = None,
    top_p: torch.Tensor | None = None,
) -> dict[str, torch.Tensor]:
    """Return where draws lie in the cumulative distributions of their rows, tokens in several orders.

    By probability tells truncation and temperature; by index, parts of the vocabulary that are left out; by lane (the
    index modulo 32 first), what single threads leave out.

    Args:
        probs: (rows, tokens), as are `top_k` and `top_p` of `outside`.
        samples: (calls, rows): tokens that `outside` has nothing against.
        top_k: see `outside`.
        top_p: see `outside`.

    Returns:
        By order: (calls, rows) in float64, on a CPU.
    """
    calls, rows = samples.shape
    tokens = torch.arange(probs.shape[1], device=probs.device)
    lanes = torch.argsort(tokens % _LANES, stable=True)
    found = {name: torch.empty(calls, rows, dtype=torch.float64) for name in ("probability", "index", "lane")}
    for row in range(rows):
        sorted_masses, order = probs[row].double().sort(descending=True, stable=True)
        k = 0 if top_k is None else int(top_k[row])
        p = 1.0 if top_p is None else float(top_p[row])
        kept = _kept(sorted_masses, k, p)
        masses = torch.zeros_like(sorted_masses)
        masses[order] = kept
        drawn = samples[:, row].long()
        within = torch.rand(calls, dtype=torch.float64, device=probs.device)
        for name, of_order in (("probability", order), ("index", tokens), ("lane", lanes)):
            found[name][:, row] = _places(masses, of_order, drawn, within).cpu()
    return found


def wrong_indices(
    queries: torch.Tensor,
    packed: torch.Tensor,
    weights: torch.Tensor,
    lengths: torch.Tensor,
    table: torch.Tensor,
    indices: torch.Tensor,
) -> str:
    """Say what is wrong with the keys that an indexer names for each row; nothing if they are right.

    A key's score is sum over heads of weight * relu(query . key), computed here in float64. Keys whose score lies at
    the border, by what sums in float32 may be off, are right either way.

    Args:
        queries: (rows, heads, width) in fp8.
        packed: (pages, keys of a page, 1, width + 4) bytes: of a page first all keys in fp8, then a float32 scale each.
        weights: (rows, heads).
        lengths: (rows,): how many keys each row has.
        table: (rows, most pages): pages of each row, in order.
        indices: (rows, picks): page * keys of a page + place in it; -1 behind the last.
    """
    pages, page_size, _, width = packed.shape
    flat = packed.contiguous().view(torch.uint8).reshape(pages, -1)
    values = flat[:, : page_size * (width - _SCALE_BYTES)].contiguous().view(torch.float8_e4m3fn)
    scales = flat[:, page_size * (width - _SCALE_BYTES) :].contiguous().view(torch.float32)
    keys = values.to(torch.float64).reshape(pages, page_size, -1) * scales.double()[:, :, None]
    for row, length in enumerate(lengths.tolist()):
        in_pages = table[row, : -(-length // page_size)].long()
        offsets = torch.arange(page_size, device=table.device)
        places = (in_pages[:, None] * page_size + offsets).reshape(-1)[:length]
        own = keys[in_pages].reshape(-1, keys.shape[-1])[:length]
        products = queries[row].to(torch.float64) @ own.T
        most = queries[row].to(torch.float64).abs() @ own.abs().T
        of_heads = weights[row].double()[:, None]
        slack = (most * of_heads.abs()).sum(dim=0) * _LOST
        if said := wrong_picks((products.relu() * of_heads).sum(dim=0), places, indices[row], slack):
            return f"row {row}: {said}"
    return ""


def wrong_picks(scores: torch.Tensor, places: torch.Tensor, picked: torch.Tensor, slack: torch.Tensor) -> str:
    """Say what is wrong with the places of the largest scores of a row, in any order; nothing if they are right.

    Args:
        scores: (places,) of all, in float64.
        places: (places,), each once: what a candidate writes for each.
        picked: (picks,) of a candidate; behind the last one -1, where there are fewer scores than picks.
        slack: (places,): how far each score may be off by rounding.
    """
    wanted = min(len(picked), len(scores))
    given = picked[picked != -1]
    if len(given) != wanted:
        return f"{len(given)} places are named, and {wanted} are asked for"
    if bool((picked[:wanted] == -1).any()):
        return "-1 stands before the end"
    if len(set(given.tolist())) != wanted:
        return "a place is named twice"
    order = places.argsort()
    at = torch.searchsorted(places[order].contiguous(), given.to(places.dtype).contiguous()).clamp(max=len(places) - 1)
    found = order[at]
    if bool((missing := places[found] != given).any()):
        return f"{int(given[missing][0])} is no place of this row"
    is_picked = torch.zeros(len(scores), dtype=torch.bool, device=scores.device)
    is_picked[found] = True
    border = scores.topk(wanted).values[-1]
    slack = slack + slack[scores.topk(wanted).indices[-1]]
    if bool((low := is_picked & (scores + slack < border)).any()):
        return f"{int(places[low][0])} has a score of {float(scores[low][0]):.6g}, below the border {float(border):.6g}"
    if bool((left := ~is_picked & (scores - slack > border)).any()):
        return (
            f"{int(places[left][0])} is left out: its score is {float(scores[left][0]):.6g}, above {float(border):.6g}"
        )
    return ""


def _against(masses: torch.Tensor, token: int, k: int, p: float) -> str:
    """Say why a token of a row may not be drawn; nothing if it may."""
    likelier = masses > masses[token]
    if not float(masses[token]) > 0.0:
        return f"token {token} has the probability 0"
    is_cut = 0 < k < len(masses)
    if is_cut and (rank := int(likelier.sum())) >= k:
        return f"token {token} is number {rank + 1} by probability, and top_k is {k}"
    if p >= 1.0:
        return ""
    before = float(masses[likelier].sum() / (masses.topk(k).values.sum() if is_cut else masses.sum()))
    # Of nothing, one token is left: the likeliest.
    return (
        ""
        if before <= (p + SLACK if p > 0.0 else 0.0)
        else (f"tokens likelier than {token} have {before:.6f} of the mass, and top_p is {p:.6f}")
    )


def _kept(masses: torch.Tensor, k: int, p: float) -> torch.Tensor:
    """Return what may be drawn, others set to 0.

    Args:
        masses: of one row, the largest first.
        k: see `outside`.
        p: see `outside`.
    """
    if 0 < k < len(masses):
        # All that are as likely as the last one are let through by `outside`: too few to be seen in the count.
        masses = torch.where(torch.arange(len(masses), device=masses.device) < k, masses, 0.0)
    masses = masses / masses.sum()
    if p >= 1.0:
        return masses
    before = masses.cumsum(0) - masses
    kept = torch.where(before <= max(p, 0.0), masses, 0.0)
    return kept / kept.sum()


def _places(masses: torch.Tensor, order: torch.Tensor, drawn: torch.Tensor, within: torch.Tensor) -> torch.Tensor:
    ends = torch.empty_like(masses)
    ends[order] = masses[order].cumsum(0)
    shares = masses[drawn]
    return (ends[drawn] - shares + within * shares).clamp(0.0, 1.0)
