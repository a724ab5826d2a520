"""Sampling of codes, a batch of rows at a time, each with settings of its own. All in float32.

A row is ranked once and may be drawn from several times. The draw is an exponential race: the entry with the largest
probability / -log(u), u uniform for each entry, is one that multinomial sampling could have drawn, and exactly so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from speechmill.models.common.draws import Draws

COLDEST = 1e-5
"""Temperature; lower ones are as good as it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Tensors [rows] each."""

    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    """At least 1; the size of the vocabulary or more for no limit."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Logits in falling order."""

    logits: Tensor
    """float32 [rows, n]"""
    entries: Tensor
    """Whose they are, int64 [rows, n]; among equals the lower one is first."""


def rank(logits: Tensor) -> Ranked:
    """logits [rows, n]"""
    ordered, entries = logits.float().sort(dim=-1, descending=True, stable=True)
    return Ranked(ordered, entries)


def probabilities(ranked: Ranked, settings: Settings) -> Tensor:
    """What may be drawn with which probability, in ranked order [rows, n].

    top_p is measured before the temperature, and the entry that crosses it is out, except the first.
    """
    ranks = torch.arange(ranked.logits.shape[-1], device=ranked.logits.device)
    reached = ranked.logits.softmax(-1).cumsum(-1)
    out = (reached > settings.top_p[:, None]) | (ranks >= settings.top_k[:, None])
    kept = ranked.logits.masked_fill(out & (ranks > 0), float("-inf"))
    return (kept / settings.temperature.clamp(min=COLDEST)[:, None]).softmax(-1)


def warped(ranked: Ranked, settings: Settings) -> Tensor:
    """The same in the order of Transformers: temperature, top_k, and top_p of what is left.

    Entries as likely as the last of top_k are in, and so is the one that crosses top_p.
    """
    scaled = ranked.logits / settings.temperature.clamp(min=COLDEST)[:, None]
    last = settings.top_k.clamp(max=scaled.shape[-1]).long() - 1
    kept = scaled.masked_fill(scaled < scaled.gather(-1, last[:, None]), float("-inf"))
    shares = kept.softmax(-1)
    before = shares.cumsum(-1) - shares
    out = (before >= settings.top_p[:, None]) & (settings.top_p < 1)[:, None]
    return kept.masked_fill(out, float("-inf")).softmax(-1)


def race(ranked: Ranked, probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """The winning entry of each row [rows]; `uniforms` in ranked order."""
    winner = (probabilities / -uniforms.log()).argmax(-1, keepdim=True)
    return ranked.entries.gather(-1, winner)[:, 0]


def sample(
    ranked: Ranked,
    settings: Settings,
    draws: Draws,
    draw: int,
    rule: Callable[[Ranked, Settings], Tensor] = probabilities,
) -> Tensor:
    """One entry of each row [rows], by draw number `draw` of the frame."""
    return race(ranked, rule(ranked, settings), draws(draw, ranked.entries))


def penalise(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Repetition penalty (Keskar et al., arXiv:1909.05858): entries in `seen` bool [rows, n] by `penalty` [rows]."""
    factor = penalty[:, None]
    return torch.where(seen, torch.where(logits > 0, logits / factor, logits * factor), logits)


def repeats(token: Tensor, window: Tensor) -> Tensor:
    """Whether each token [rows] stands in its row of `window` [rows, length]: bool [rows]."""
    return (window == token[:, None]).any(-1)


def shifted(window: Tensor, token: Tensor) -> Tensor:
    """The window [rows, length] after `token` [rows], the oldest one gone."""
    return torch.cat([window[:, 1:], token[:, None]], dim=-1)
