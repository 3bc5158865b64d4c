"""Routing: where a text goes, token by token.

Shapes: T tokens, I input width, M width of a layer's dense output, K active.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.errors import TooLongError, UserError
from trainer.highlighting import Shaded, rows, shaded_text
from trainer.language_model import LanguageModel
from trainer.layers.cross_layer import norms_in_layers
from trainer.layers.mxd import MxD
from trainer.layers.sparse import Routing as LayerRouting
from trainer.layers.sparse import SparseLayer
from trainer.run import Run
from trainer.tokens import separator_id, token_texts


class RoutedExpert(NamedTuple):
    """An expert that is active on a token."""

    expert: int
    coefficient: float
    share: float
    """Of the summed norms of what all active experts add on this token."""
    shares: tuple[float, ...] = ()
    """The same in each layer that is written, where there are several."""


@dataclass(frozen=True)
class RoutedToken:
    """One token of the text, and which experts are active on it."""

    id: int
    text: str
    start: bool
    """Put in front by us, as at the start of every document in fitting."""
    experts: tuple[RoutedExpert, ...]
    """Largest coefficient first."""


@dataclass(frozen=True)
class Routing:
    """The routing of a text through one run."""

    run: str
    tokens: tuple[RoutedToken, ...]

    def strongest(self, count: int = 8) -> tuple[int, ...]:
        """The experts that do most on the whole text but for the start token, by the sum of their shares."""
        shares: defaultdict[int, float] = defaultdict(float)
        for token in self.tokens:
            for it in () if token.start else token.experts:
                shares[it.expert] += it.share
        return tuple(sorted(shares, key=lambda expert: -shares[expert])[:count])

    def _repr_html_(self) -> str:
        """The text once for each of its strongest experts, shaded by that expert's coefficient."""
        lines = [(f"<b>{expert}</b>", shaded_text(self._by(expert))) for expert in self.strongest()]
        return rows(("expert", f"where it is active ({self.run})"), lines)

    def _by(self, expert: int) -> list[Shaded]:
        found = [next((it.coefficient for it in token.experts if it.expert == expert), 0.0) for token in self.tokens]
        largest = max(found)
        return [
            Shaded(token.text, value / largest, f"{value:.4f}" if value else "", value == largest)
            for token, value in zip(self.tokens, found, strict=True)
            if not token.start
        ]


def prompt_ids(language_model: LanguageModel, text: str, room: int = 0) -> list[int]:
    """Token ids of a text behind the start token.

    Raises:
        TooLongError: with ``room`` more tokens it would not fit the language model.
    """
    tokenizer = language_model.tokenizer
    ids: list[int] = [separator_id(tokenizer), *tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]]
    if len(ids) + room > language_model.max_tokens:
        also = f" and {room} new ones are wanted" if room else ""
        raise TooLongError(
            f"The text has {len(ids)} tokens{also}, and {language_model.source} takes {language_model.max_tokens}; "
            "shorten it."
        )
    return ids


def check_fits(language_model: LanguageModel, run: Run) -> None:
    """Refuse a layer that was fitted to an MLP of other widths, or reads no input of one.

    Raises:
        UserError: the widths differ, or the layer is an autoencoder.
    """
    if run.layer.reads == "mlp-output":
        raise UserError(
            f"The run {run.name} is an {run.config.method}: it reads what the MLP wrote, so text is not routed or "
            "steered through it; evaluate, index or probe it, or choose another run."
        )
    shape, layer = language_model.mlp_shape(run.config.layer), run.layer.config
    written = sum(language_model.mlp_shape(block).output_width for block in run.config.layers)
    if (shape.input_width, written) != (layer.input_width, layer.output_width):
        raise UserError(
            f"The run {run.name} reads {layer.input_width} and writes {layer.output_width} values, but layer "
            f"{run.config.layer} of {language_model.source} reads {shape.input_width} and writes "
            f"{written}; load the language model that it was fitted to."
        )


def refuse_several_layers(run: Run, what: str) -> None:
    """Refuse a run that writes several layers where one is what is worked on.

    Args:
        what: that cannot be had of it, at the beginning of a sentence.

    Raises:
        UserError: it is one.
    """
    if len(run.config.layers) > 1:
        raise UserError(
            f"{what} is not to be had of a run that writes several layers, and {run.name} writes layers "
            f"{run.config.layers[0]} to {run.config.layers[-1]}; choose one that writes a single layer."
        )


def text_ids(language_model: LanguageModel, runs: Sequence[Run], text: str) -> list[int]:
    """Token ids of a text that several runs are to be watched on, behind the start token.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the text is empty, two runs are of one layer, or one was fitted to another language model.
    """
    if not text:
        raise UserError("There is no text to route; type some.")
    layers: dict[int, str] = {}
    for run in runs:
        check_fits(language_model, run)
        other = layers.setdefault(run.config.layer, run.name)
        if other != run.name:
            raise UserError(f"{other} and {run.name} are both of layer {run.config.layer}; choose one run a layer.")
    if len(layers) < len(runs):
        raise UserError("A run is named twice; name each once.")
    return prompt_ids(language_model, text)


def route(language_model: LanguageModel, run: Run, text: str, k: int | None = None) -> Routing:
    """Route a text: the language model is run up to the layer, and no further.

    Args:
        k: experts of each token that are let through, the strongest first; by default the run's K.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the text is empty, or the run was fitted to another language model, or has no such K.
    """
    return route_together(language_model, [run], text, k)[0]


@torch.inference_mode()
def route_together(
    language_model: LanguageModel, runs: Sequence[Run], text: str, k: int | None = None
) -> tuple[Routing, ...]:
    """Route a text through runs of several layers in one forward pass: one routing for each, in their order.

    Each sees what it sees alone: the layers before it are those of the untouched language model. ``k`` is that of all.

    Raises:
        TooLongError: as ``route``.
        UserError: as ``route``; or two runs are of one layer.
    """
    ids = text_ids(language_model, runs, text)
    layers = [run.at_k(k) for run in runs]
    texts = token_texts(language_model.tokenizer, ids)
    inputs = language_model.mlp_inputs([run.config.layer for run in runs], torch.tensor([ids]))
    routings = []
    for run, layer in zip(runs, layers, strict=True):
        layer.to(language_model.device_of(run.config.layer))
        x_TI = inputs[run.config.layer].float()
        experts = routed_experts(layer, layer.dense_output(x_TI), layer.route(x_TI))
        parts = zip(ids, texts, experts, strict=True)
        tokens = tuple(RoutedToken(token, written, i == 0, active) for i, (token, written, active) in enumerate(parts))
        routings.append(Routing(run.name, tokens))
    return tuple(routings)


def routed_experts(layer: SparseLayer, dense_TM: Tensor, routing: LayerRouting) -> list[tuple[RoutedExpert, ...]]:
    """For each token its active experts, largest coefficient first, with their shares of the output's norm."""
    norms_TK = layer.contribution_norms(dense_TM, routing)
    shares_TK = norms_TK / norms_TK.sum(dim=1, keepdim=True).clamp_min(1e-12)
    columns = (routing.indices_TK.tolist(), routing.coefficients_TK.tolist(), shares_TK.tolist())
    rows = zip(*columns, _shares_in_layers(layer, dense_TM, routing), strict=True)
    active = ([RoutedExpert(*expert) for expert in zip(*row, strict=True) if expert[1] != 0] for row in rows)
    # A gate without a top-k has them by id.
    return [tuple(sorted(experts, key=lambda expert: -expert.coefficient)) for experts in active]


def _shares_in_layers(layer: SparseLayer, dense_TM: Tensor, routing: LayerRouting) -> list[list[tuple[float, ...]]]:
    """For each token and expert its share in each layer that is written; nothing where that is one alone."""
    if layer.span == 1:
        return [[()] * routing.indices_TK.shape[1]] * len(routing.indices_TK)
    assert isinstance(layer, MxD)
    norms_TKS = norms_in_layers(layer, dense_TM, routing)
    shares_TKS = norms_TKS / norms_TKS.sum(dim=1, keepdim=True).clamp_min(1e-12)
    return [[tuple(shares) for shares in experts] for experts in shares_TKS.tolist()]


def single_texts(language_model: LanguageModel, ids: set[int]) -> dict[int, str]:
    """Text of each token in the middle of a text, so with its leading space."""
    known = language_model.single_texts
    unknown = sorted(ids - known.keys())
    if unknown:
        tokenizer = language_model.tokenizer
        before = separator_id(tokenizer)
        prefix, *texts = tokenizer.batch_decode([[before], *([before, token] for token in unknown)])
        known.update((token, text.removeprefix(prefix)) for token, text in zip(unknown, texts, strict=True))
    return {token: known[token] for token in ids}
