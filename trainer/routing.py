"""Routing: where a text goes, token by token.

Shapes: T tokens, V vocabulary, K active.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trainer.errors import TooLongError, UserError
from trainer.language_model import LanguageModel
from trainer.layers.sparse import LayerOutput, SparseLayer
from trainer.layers.sparse import Routing as LayerRouting
from trainer.run import Run
from trainer.stand_ins import Mlp
from trainer.tokens import separator_id, token_texts

PREDICTIONS = 6
"""Most probable next tokens taken from each arm."""
KL_TOKENS = 16
"""Tokens whose distributions are compared at a time."""
BLOCK = 64
"""Tokens of the vocabulary whose largest value is found at a time."""


class RoutedExpert(NamedTuple):
    """An expert that is active on a token."""

    expert: int
    coefficient: float
    share: float
    """Of the summed norms of what all active experts add on this token."""


class Prediction(NamedTuple):
    """A next token and its probability with the original MLP and with the layer in its place."""

    id: int
    text: str
    original: float
    replaced: float


@dataclass(frozen=True)
class RoutedToken:
    """One token of the text, which experts are active on it, and what the language model expects after it."""

    id: int
    text: str
    start: bool
    """Put in front by us, as at the start of every document in fitting."""
    kl: float
    """KL from the original next-token distribution to that with the layer in place of the MLP, in nats."""
    experts: tuple[RoutedExpert, ...]
    """Largest coefficient first."""
    predictions: tuple[Prediction, ...]
    """Most probable first, by the original."""


@dataclass(frozen=True)
class Routing:
    """The routing of a text through one run."""

    run: str
    tokens: tuple[RoutedToken, ...]


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
    if (shape.input_width, shape.output_width) != (layer.input_width, layer.output_width):
        raise UserError(
            f"The run {run.name} reads {layer.input_width} and writes {layer.output_width} values, but layer "
            f"{run.config.layer} of {language_model.source} reads {shape.input_width} and writes "
            f"{shape.output_width}; load the language model that it was fitted to."
        )


@torch.no_grad()
def route(language_model: LanguageModel, run: Run, text: str) -> Routing:
    """Route a text in one forward pass, from the layer on with two rows: with the original MLP, and with the layer.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the text is empty, or the run was fitted to another language model.
    """
    if not text:
        raise UserError("There is no text to route; type some.")
    check_fits(language_model, run)
    ids = prompt_ids(language_model, text)
    seen = _Seen(run.layer.to(language_model.device))
    rows = 1 if language_model.splits(run.config.layer) else 2
    with language_model.stand_in({run.config.layer: seen.answer}):
        logits_2TV = language_model.logits(torch.tensor([ids] * rows))
    original_TV, replaced_TV = logits_2TV.log_softmax(dim=-1)
    kl_T = divergence(original_TV, replaced_TV)
    texts = token_texts(language_model.tokenizer, ids)
    parts = zip(
        ids,
        texts,
        kl_T.tolist(),
        seen.experts(),
        predictions(language_model, original_TV, replaced_TV),
        strict=True,
    )
    return Routing(run.name, tuple(RoutedToken(a, b, i == 0, c, d, e) for i, (a, b, c, d, e) in enumerate(parts)))


def divergence(original_TV: Tensor, replaced_TV: Tensor) -> Tensor:
    """KL [T] in nats from original next-token distributions to others, both as log-probabilities."""
    kl_T = torch.empty(len(original_TV), device=original_TV.device)
    for place in range(0, len(kl_T), KL_TOKENS):  # a block of tokens at a time stays in the processor's cache
        here = slice(place, place + KL_TOKENS)
        change_CV = original_TV[here] - replaced_TV[here]
        kl_T[here] = change_CV.mul_(original_TV[here].exp()).sum(dim=-1)
    return kl_T.clamp_min_(0)


def largest(values_TV: Tensor, count: int) -> Tensor:
    """Ids [T, count] of the largest values, as ``topk`` has them: found among the blocks with the largest maxima."""
    width = values_TV.shape[1]
    blocks = width // BLOCK
    if blocks <= count:
        return values_TV.topk(min(count, width), dim=1).indices
    head_TNB = values_TV[:, : blocks * BLOCK].view(len(values_TV), blocks, BLOCK)
    best_TP = head_TNB.amax(dim=2).topk(count, dim=1).indices
    ids_TC = (best_TP.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=values_TV.device)).flatten(1)
    rest_R = torch.arange(blocks * BLOCK, width, device=values_TV.device)
    ids_TC = torch.cat([ids_TC, rest_R.expand(len(values_TV), -1)], dim=1)
    return ids_TC.gather(1, values_TV.gather(1, ids_TC).topk(count, dim=1).indices)


class _Seen:
    """Answers with two rows, the MLP's and the layer's, and keeps what the layer made of the text.

    Both rows hold the same up to here: one is read where the language model lets it become two, otherwise two are.
    """

    def __init__(self, layer: SparseLayer) -> None:
        self.layer = layer
        self.x_TI: Tensor | None = None
        self.routing: LayerRouting | None = None

    def answer(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        self.x_TI = x_RTI[0].float()
        output: LayerOutput = self.layer(self.x_TI)
        self.routing = output.routing
        return torch.stack([mlp()[0], output.output_TO.to(x_RTI.dtype)])

    def experts(self) -> list[tuple[RoutedExpert, ...]]:
        assert self.x_TI is not None and self.routing is not None
        return routed_experts(self.layer, self.x_TI, self.routing)


def routed_experts(layer: SparseLayer, x_TI: Tensor, routing: LayerRouting) -> list[tuple[RoutedExpert, ...]]:
    """For each token its active experts, largest coefficient first, with their shares of the output's norm."""
    norms_TK = layer.contribution_norms(x_TI, routing)
    shares_TK = norms_TK / norms_TK.sum(dim=1, keepdim=True).clamp_min(1e-12)
    rows = zip(routing.indices_TK.tolist(), routing.coefficients_TK.tolist(), shares_TK.tolist(), strict=True)
    return [tuple(RoutedExpert(*expert) for expert in zip(*row, strict=True) if expert[1] != 0) for row in rows]


def predictions(
    language_model: LanguageModel, original_TV: Tensor, replaced_TV: Tensor
) -> list[tuple[Prediction, ...]]:
    """For each token the most probable next ones of either arm, by log-probabilities [T, V] of both."""
    ids_TP = torch.cat([largest(values, PREDICTIONS) for values in (original_TV, replaced_TV)], dim=1)
    rows = zip(
        ids_TP.tolist(),
        original_TV.gather(1, ids_TP).exp().tolist(),
        replaced_TV.gather(1, ids_TP).exp().tolist(),
        strict=True,
    )
    unique = [{token: (a, b) for token, a, b in zip(*row, strict=True)} for row in rows]
    texts = single_texts(language_model, {token for row in unique for token in row})
    return [
        tuple(
            Prediction(token, texts[token], *probabilities)
            for token, probabilities in sorted(row.items(), key=lambda item: -item[1][0])
        )
        for row in unique
    ]


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
