"""Tracing a circuit: from the logit back to experts, from these to earlier ones, to tokens.

The most influential experts are followed, a few in each backward pass: every row of a batch holds the same text, and
each asks for the causes of another node.

Shapes: B rows, T tokens, I input width, S sources, F followed nodes, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainer.circuits.config import MOST_TOKENS, CircuitConfig, TargetConfig
from trainer.circuits.graph import Circuit, CircuitNode, CircuitToken, Edge, NextToken, Source
from trainer.circuits.influence import Kept, Shares, influences, prune, shares
from trainer.circuits.passes import FrozenPass, all_live, run_frozen
from trainer.circuits.sources import Place, PlaceKey, Sources
from trainer.errors import TooLongError, UserError
from trainer.language_model import LanguageModel
from trainer.progress import Progress, silent
from trainer.routing import refuse_several_layers, single_texts, text_ids
from trainer.run import Run
from trainer.tokens import token_texts

CANDIDATES = 10
TOKENS_AT_A_TIME = 1024
"""Tokens of a batch, all rows together: what a pass holds in memory is that of so many."""
MOST_ROWS = 16
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
"""By how much the parts may miss the logit, of the sum of their sizes; ``LOOSE`` in half precision."""
LOOSE = 5e-2


def trace(
    language_model: LanguageModel,
    runs: Run | Sequence[Run],
    config: CircuitConfig | str,
    progress: Progress = silent,
) -> Circuit:
    """The circuit of a prompt: what makes the next token likely, through the layers of some runs.

    Args:
        runs: fitted layers of different MLPs of this language model, one at least.
        config: a prompt, or that with settings.
        progress: told how many of the experts have been followed; what it raises ends the work.

    Raises:
        TooLongError: the text has more tokens than the language model or ``MOST_TOKENS`` allow.
        UserError: the text is empty, a run does not fit, there is no such token, or the architecture holds something
            between its MLPs that cannot be frozen.
    """
    asked = CircuitConfig(prompt=config) if isinstance(config, str) else config
    chosen = sorted([runs] if isinstance(runs, Run) else runs, key=lambda run: run.config.layer)
    ids = traced_ids(language_model, chosen, asked)
    rows = rows_for(len(ids))
    ids_BT = torch.tensor([ids] * rows)
    frozen = run_frozen(language_model, chosen, ids_BT, asked.errors)
    token = target_of(frozen.logits_BV[0], asked.target)
    traced = _follow(_Trace.start(frozen, token), asked.followed, progress)
    live = run_frozen(language_model, chosen, ids_BT, asked.errors, all_live)
    return _described(language_model, chosen, asked, ids, traced, _effects(live, token))


def traced_ids(language_model: LanguageModel, runs: Sequence[Run], config: TargetConfig) -> list[int]:
    """Token ids of the text up to the position that is traced.

    Raises:
        TooLongError: as ``trace``.
        UserError: as ``trace``.
    """
    if not runs:
        raise UserError("There is no run to trace a circuit through; name one at least.")
    for run in runs:
        refuse_several_layers(run, "A circuit")
    if unfit := [run.name for run in runs if run.config.method == "peer"]:
        raise UserError(
            f"A coefficient of {unfit[0]} is a product of two numbers of its input, and a circuit follows one; leave "
            "runs of the method peer out."
        )
    ids = text_ids(language_model, runs, config.prompt)
    last = len(ids) - 1 if config.position is None else config.position
    if last >= len(ids):
        raise UserError(f"The text has tokens 0 to {len(ids) - 1}; there is no token {last}.")
    if last >= MOST_TOKENS:
        raise TooLongError(
            f"A circuit is traced through {MOST_TOKENS} tokens at most, and this one ends at token {last}; shorten the "
            "text, or choose an earlier token."
        )
    vocabulary = language_model.config.vocab_size
    if config.target is not None and config.target >= vocabulary:
        raise UserError(f"There is no token {config.target}; {language_model.source} has tokens 0 to {vocabulary - 1}.")
    return ids[: last + 1]


def rows_for(tokens: int) -> int:
    """How many texts of so many tokens are worked on together."""
    return max(1, min(MOST_ROWS, TOKENS_AT_A_TIME // tokens))


def target_of(logits_V: Tensor, asked: int | None) -> int:
    """The next token that is explained."""
    return int(logits_V.argmax()) if asked is None else asked


def target_seed(logits_BV: Tensor, token: int) -> Tensor:
    """What the logits are multiplied with for the target: the token's logit less the mean of all."""
    seed_BV = torch.full_like(logits_BV, -1 / logits_BV.shape[1], requires_grad=False)
    seed_BV[:, token] += 1
    return seed_BV


@dataclass(frozen=True, eq=False)
class _Trace:
    """A graph as far as it is known."""

    frozen: FrozenPass
    sources: Sources
    token: int
    logit: float
    followed: tuple[int, ...]
    """Places among the sources; the target is -1, and first."""
    weights_FS: Tensor
    constants: float
    """What biases add to the target."""

    @classmethod
    def start(cls, frozen: FrozenPass, token: int) -> _Trace:
        """The target and what adds to it past no other expert."""
        sources = Sources.of(frozen)
        seed_BV = target_seed(frozen.logits_BV, token)
        seed_BV[1:] = 0
        logit = float((frozen.logits_BV[0].detach() * seed_BV[0]).sum())
        parts = frozen.parts([frozen.logits_BV], [seed_BV])
        row_S, constants = sources.row(parts)[0], float(parts.constants_B[0])
        it = cls(frozen, sources, token, logit, (-1,), row_S.unsqueeze(0), constants)
        it.check()
        return it

    @property
    def rounding(self) -> float:
        """By how much all that adds to the logit misses it."""
        return float(self.weights_FS[0].sum()) + self.constants - self.logit

    @property
    def grounded(self) -> tuple[int, ...]:
        """The followed experts that come from other sources; one that biases alone make active is where paths begin."""
        sizes_F = self.weights_FS.abs().sum(1).tolist()
        return tuple(place for place, size in zip(self.followed[1:], sizes_F[1:], strict=True) if size > 0)

    def check(self) -> None:
        """Refuse an architecture that is not linear where it should be: there the parts do not add up.

        Raises:
            UserError: they do not.
        """
        size = float(self.weights_FS[0].abs().sum()) + abs(self.constants)
        if not abs(self.rounding) <= TOLERANCE.get(self.frozen.embedding_BTW.dtype, LOOSE) * size:  # nor if it is NaN
            raise UserError(
                f"What adds to the logit sums up to {self.logit + self.rounding:.4g} and not to {self.logit:.4g}: this "
                "architecture holds something between its MLPs that cannot be frozen, so there is no circuit of it."
            )

    def shares(self) -> Shares:
        return shares(self.followed, self.weights_FS)

    def next_experts(self, count: int) -> list[int]:
        """The most influential experts that have not been followed yet."""
        influence_S = influences(self.shares())
        known = set(self.followed)
        ranked = influence_S.argsort(descending=True, stable=True).tolist()
        waiting = (place for place in ranked if self.sources.kinds[place] == "expert" and place not in known)
        return [place for place, _ in zip(waiting, range(count), strict=False) if influence_S[place] > 0]

    def with_causes(self, places: Sequence[int]) -> _Trace:
        """The same with the causes of some experts: one backward pass, each in a row of its own."""
        found: dict[int, Tensor] = {}
        for row, place in enumerate(places):
            at = self.sources.places[place]
            assert at.layer is not None
            site = self.frozen.sites[at.layer]
            seed_BTI = found.setdefault(at.layer, torch.zeros_like(site.x_BTI))
            assert at.expert is not None
            seed_BTI[row, at.position] = site.layer.gate.rows(torch.tensor([at.expert]))[0].to(seed_BTI.dtype)
        parts = self.frozen.parts([self.frozen.sites[layer].x_BTI for layer in found], list(found.values()))
        rows_FS = self.sources.row(parts)[: len(places)]
        return replace(self, followed=(*self.followed, *places), weights_FS=torch.cat([self.weights_FS, rows_FS]))


def _follow(traced: _Trace, most: int, progress: Progress) -> _Trace:
    rows = traced.frozen.embedding_BTW.shape[0]
    experts = sum(kind == "expert" for kind in traced.sources.kinds)
    while found := traced.next_experts(min(rows, most + 1 - len(traced.followed))):
        progress(len(traced.followed) - 1, min(most, experts), "")
        traced = traced.with_causes(found)
    return traced


def _effects(live: FrozenPass, token: int) -> dict[PlaceKey, float]:
    """What every source adds to the target along all paths."""
    sources = Sources.of(live)
    row_S = sources.row(live.parts([live.logits_BV], [target_seed(live.logits_BV, token)]))[0]
    return {place.key: value for place, value in zip(sources.places, row_S.tolist(), strict=True)}


def _described(
    language_model: LanguageModel,
    runs: Sequence[Run],
    config: CircuitConfig,
    ids: Sequence[int],
    traced: _Trace,
    effects: Mapping[PlaceKey, float],
) -> Circuit:
    shares, influence_S = traced.shares(), influences(traced.shares())
    kept = prune(shares, influence_S, config.nodes, config.share, config.edge_share)
    names = {run.config.layer: run.name for run in runs}
    known = set(traced.followed)
    nodes = [
        _node(
            traced.sources.places[place], names, float(traced.weights_FS[0, place]), float(influence_S[place]), effects
        )
        for place in kept.nodes
    ]
    marked = [replace(node, followed=place in known) for node, place in zip(nodes, kept.nodes, strict=True)]
    begins_S = influence_S.clone()
    begins_S[list(traced.grounded)] = 0
    direct: dict[Source, float] = {**traced.sources.by_kind(traced.weights_FS[0]), "bias": traced.constants}
    texts = token_texts(language_model.tokenizer, list(ids))
    target, candidates = _next_tokens(language_model, traced.frozen.logits_BV[0].detach(), traced.token)
    return Circuit(
        runs=tuple(run.name for run in runs),
        layers=tuple(run.config.layer for run in runs),
        tokens=tuple(CircuitToken(*it, start=i == 0) for i, it in enumerate(zip(ids, texts, strict=True))),
        target=target,
        candidates=candidates,
        nodes=(_target_node(len(ids) - 1, traced.logit), *marked),
        edges=_edges(traced, kept),
        direct=direct,
        begins=traced.sources.by_kind(begins_S),
        num_nodes=len(influence_S),
        kept_influence=kept.influence,
        kept_edges=kept.edge_influence,
        rounding=traced.rounding,
    )


def _target_node(position: int, logit: float) -> CircuitNode:
    return CircuitNode("target", position, None, None, None, None, 1.0, logit, logit, followed=True)


def _node(
    place: Place, names: Mapping[int, str], direct: float, influence: float, effects: Mapping[PlaceKey, float]
) -> CircuitNode:
    run = None if place.layer is None else names.get(place.layer)
    return CircuitNode(
        kind=place.kind,
        position=place.position,
        layer=place.layer,
        run=run,
        expert=place.expert,
        coefficient=place.coefficient,
        influence=influence,
        direct=direct,
        # An expert may be chosen in one pass and not in another only where two are alike to the last bit.
        effect=effects.get(place.key, direct),
        followed=False,
    )


def _edges(traced: _Trace, kept: Kept) -> tuple[Edge, ...]:
    rows = {place: row for row, place in enumerate(traced.followed)}
    numbers = {place: number for number, place in enumerate([-1, *kept.nodes])}
    return tuple(
        Edge(numbers[source], numbers[target], float(traced.weights_FS[rows[target], source]), influence)
        for source, target, influence in kept.edges
    )


def _next_tokens(
    language_model: LanguageModel, logits_V: Tensor, token: int
) -> tuple[NextToken, tuple[NextToken, ...]]:
    probabilities_V, above_V = logits_V.softmax(-1), logits_V - logits_V.mean()
    best: list[int] = logits_V.topk(min(CANDIDATES, len(logits_V))).indices.tolist()
    texts = single_texts(language_model, {*best, token})
    found = {id: NextToken(id, texts[id], float(probabilities_V[id]), float(above_V[id])) for id in {*best, token}}
    return found[token], tuple(found[id] for id in best)
