"""Routing of one text through the runs of several layers of one language model, in one forward pass.

Row 0 is the untouched language model; in row n the layer of run n stands in for its MLP. All rows hold the same up to
there, so each run sees what it would see alone, and its divergence is that of its own layer.

Shapes: R rows, T tokens, I input width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.layers.sparse import LayerOutput
from trainer.routing import (
    RoutedExpert,
    RoutedToken,
    Routing,
    check_fits,
    divergence,
    predictions,
    prompt_ids,
    routed_experts,
)
from trainer.run import Run
from trainer.stand_ins import Mlp
from trainer.tokens import token_texts


@torch.no_grad()
def route_together(language_model: LanguageModel, runs: Sequence[Run], text: str) -> tuple[Routing, ...]:
    """One routing for each run, in their order.

    Raises:
        TooLongError: the text is longer than the language model takes.
        UserError: the text is empty, two runs are of one layer, or one was fitted to another language model.
    """
    if not text:
        raise UserError("There is no text to route; type some.")
    check_together(language_model, runs)
    ids = prompt_ids(language_model, text)
    answers = {run.config.layer: _Row(language_model, run, row) for row, run in enumerate(runs, start=1)}
    with language_model.stand_in({layer: answer.answer for layer, answer in answers.items()}):
        logits_RTV = language_model.logits(torch.tensor([ids] * (1 + len(runs))))
    original_TV = logits_RTV[0].log_softmax(dim=-1)
    texts = token_texts(language_model.tokenizer, ids)
    routings = []
    for row, run in enumerate(runs, start=1):
        replaced_TV = logits_RTV[row].log_softmax(dim=-1)
        kl_T = divergence(original_TV, replaced_TV)
        experts = answers[run.config.layer].experts
        parts = zip(
            ids,
            texts,
            kl_T.tolist(),
            experts,
            predictions(language_model, original_TV, replaced_TV),
            strict=True,
        )
        tokens = tuple(RoutedToken(a, b, i == 0, c, d, e) for i, (a, b, c, d, e) in enumerate(parts))
        routings.append(Routing(run.name, tokens))
    return tuple(routings)


def check_together(language_model: LanguageModel, runs: Sequence[Run]) -> None:
    """Refuse runs that cannot be watched together.

    Raises:
        UserError: two are of one layer, or one was fitted to another language model.
    """
    layers: dict[int, str] = {}
    for run in runs:
        check_fits(language_model, run)
        other = layers.setdefault(run.config.layer, run.name)
        if other != run.name:
            raise UserError(f"{other} and {run.name} are both of layer {run.config.layer}; choose one run a layer.")
    if len(layers) < len(runs):
        raise UserError("A run is named twice; name each once.")


class _Row:
    """Answers for one MLP: the MLP in every row but its own, where the layer does."""

    def __init__(self, language_model: LanguageModel, run: Run, row: int) -> None:
        self.layer = run.layer.to(language_model.device)
        self.row = row
        self.experts: list[tuple[RoutedExpert, ...]] = []

    def answer(self, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        x_TI = x_RTI[self.row].float()
        output: LayerOutput = self.layer(x_TI)
        self.experts = routed_experts(self.layer, x_TI, output.routing)
        output_RTO = mlp().clone()
        output_RTO[self.row] = output.output_TO.to(output_RTO.dtype)
        return output_RTO
