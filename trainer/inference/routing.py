"""Routing of a text and next-token predictions, with the original MLPs and with sparse layers in their place.

Shapes: R rows, T tokens, I input width, M width of the dense output, K active experts, V vocabulary size, P most
probable tokens, N vocabulary blocks, B block size.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import PredictedToken, Prediction, Predictions, RoutedExpert, RoutedToken, Routing
from mxd.trainer.language_model.mlp_hooks import EditedMlp, Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids, single_texts, token_texts
from mxd.trainer.layers.mxd import Routing as LayerRouting
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_disjoint_layers, check_fits


def text_ids(language_model: LanguageModel, runs: Sequence[Run], text: str | Sequence[int]) -> list[int]:
    """Return the token ids of a text for several runs, including the start token. The text may be such ids.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: the text is empty, two runs share a layer, or one belongs to another language model.
    """
    if len(text) < (1 if isinstance(text, str) else 2):
        raise UserError("The text is empty.")
    for run in runs:
        check_fits(language_model, run)
    check_disjoint_layers(runs)
    return prompt_ids(language_model, text, start_token=runs[0].config.text.start_token)


def route(language_model: LanguageModel, run: Run, text: str, k: int | None = None) -> Routing:
    """Route a text. The language model is computed only up to the layer.

    ``k`` is the number of active experts per token; by default the run's K.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: the text is empty, the run belongs to another language model, or has no such K.
    """
    return route_together(language_model, [run], text, k)[0]


@torch.inference_mode()
def route_together(
    language_model: LanguageModel, runs: Sequence[Run], text: str | Sequence[int], k: int | None = None
) -> tuple[Routing, ...]:
    """Route a text through runs of several layers in one forward pass; return one routing per run. Every layer reads
    the activations of the original model, as when it is routed alone. ``k`` applies to all runs. The text may be its
    token ids. Raises TooLongError (as ``route``) or UserError (as ``route``, or two runs have the same layer)."""
    ids = text_ids(language_model, runs, text)
    layers = [run.at_k(k) for run in runs]
    texts = token_texts(language_model.tokenizer, ids)
    inputs = language_model.mlp_inputs([run.config.layer for run in runs], torch.tensor([ids]))
    routings = []
    for run, sparse_layer in zip(runs, layers, strict=True):
        sparse_layer.to(language_model.device_of(run.config.layer))
        x_TI = inputs[run.config.layer].float()
        experts = routed_experts(sparse_layer, sparse_layer.dense_output(x_TI), sparse_layer.route(x_TI))
        tokens = tuple(RoutedToken(ids[i], texts[i], i == 0, experts[i]) for i in range(len(ids)))
        routings.append(Routing(run.name, tokens))
    return tuple(routings)


def routed_experts(
    sparse_layer: SparseLayer, dense_TM: Tensor, routing: LayerRouting
) -> list[tuple[RoutedExpert, ...]]:
    """For each token its active experts in descending order of activation, with their shares of the output norm."""
    norms_TK = sparse_layer.contribution_norms(dense_TM, routing)
    shares_TK = norms_TK / norms_TK.sum(dim=1, keepdim=True).clamp_min(1e-12)
    values_2TK = torch.stack((routing.activations_TK.to(shares_TK), shares_TK)).tolist()  # one wait for both
    rows = zip(routing.indices_TK.tolist(), *values_2TK, strict=True)
    active = ([RoutedExpert(*expert) for expert in zip(*row, strict=True) if expert[1] != 0] for row in rows)
    # Gates without a top-k return experts in order of id.
    return [tuple(sorted(experts, key=lambda expert: -expert.activation)) for experts in active]


NUM_PREDICTIONS = 6
"""Most probable next tokens that are listed of each distribution."""
KL_CHUNK = 16
"""Tokens whose distributions are compared at a time."""
BLOCK = 64


@torch.inference_mode()
def predict(
    language_model: LanguageModel, run: Run, text: str | Sequence[int], k: int | None = None, others: Sequence[Run] = ()
) -> Predictions:
    """Predict the next token after each token of a text, with the original MLPs and with the runs' layers, in one pass.

    The text may be its token ids. ``others`` are runs whose layers replace the MLPs of other layers at the same time.
    ``k`` applies to all; by default each run has its own K.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: the text is empty, a run is of another language model or has no such K, or two replace one layer.
    """
    runs = [run, *others]
    ids = text_ids(language_model, runs, text)
    layers = {one.config.layer: one.at_k(k).to(language_model.device_of(one.config.layer)) for one in runs}
    num_rows = 1 if language_model.can_split_row(min(layers)) else 3

    def three_rows(function: MlpFunction, x_RTI: Tensor, mlp: Mlp) -> Tensor:
        # The original output, that of ``function``, and zeros. The input is one row before the first split.
        original_RTO = mlp()
        row = slice(1, 2) if len(x_RTI) > 1 else slice(0, 1)
        replaced_1TO = function(x_RTI[row], lambda: original_RTO[row])
        return torch.stack([original_RTO[0], replaced_1TO[0], torch.zeros_like(original_RTO[0])])

    functions = {block: partial(three_rows, EditedMlp(layer, mode="replace")) for block, layer in layers.items()}
    with language_model.replace_mlps(functions):
        logits_3TV = language_model.logits(torch.tensor([ids] * num_rows))
    original_TV, replaced_TV, zeroed_TV = logits_3TV.log_softmax(dim=-1)
    # The most probable next tokens of both distributions.
    ids_TP = torch.cat([top_ids(values, NUM_PREDICTIONS) for values in (original_TV, replaced_TV)], dim=1)
    probabilities = (values_TV.gather(1, ids_TP).exp().tolist() for values_TV in (original_TV, replaced_TV))
    rows = zip(ids_TP.tolist(), *probabilities, strict=True)
    unique = [{token: (a, b) for token, a, b in zip(*row, strict=True)} for row in rows]
    texts = single_texts(language_model, {token for row in unique for token in row})
    predictions = (
        tuple(Prediction(token, texts[token], *row[token]) for token in sorted(row, key=lambda token: -row[token][0]))
        for row in unique
    )
    divergences = (kl_divergence(original_TV, other_TV).tolist() for other_TV in (replaced_TV, zeroed_TV))
    columns = zip(*divergences, predictions, strict=True)
    return Predictions(run.name, tuple(PredictedToken(*token) for token in columns))


def kl_divergence(original_TV: Tensor, replaced_TV: Tensor) -> Tensor:
    """KL divergence [T] in nats between next-token distributions, both given as log-probabilities."""
    kl_T = torch.empty(len(original_TV), device=original_TV.device)
    for start in range(0, len(kl_T), KL_CHUNK):  # a chunk stays in the processor's cache
        chunk = slice(start, start + KL_CHUNK)
        difference_CV = original_TV[chunk] - replaced_TV[chunk]
        kl_T[chunk] = difference_CV.mul_(original_TV[chunk].exp()).sum(dim=-1)
    return kl_T.clamp_min_(0)


def top_ids(values_TV: Tensor, count: int) -> Tensor:
    """Ids [T, count] of the largest values, as by ``topk``, searched only in the blocks with the largest maxima."""
    width = values_TV.shape[1]
    num_blocks = width // BLOCK
    if num_blocks <= count:
        return values_TV.topk(min(count, width), dim=1).indices
    blocks_TNB = values_TV[:, : num_blocks * BLOCK].view(len(values_TV), num_blocks, BLOCK)
    best_TP = blocks_TNB.amax(dim=2).topk(count, dim=1).indices
    ids_TC = (best_TP.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=values_TV.device)).flatten(1)
    rest_R = torch.arange(num_blocks * BLOCK, width, device=values_TV.device)
    ids_TC = torch.cat([ids_TC, rest_R.expand(len(values_TV), -1)], dim=1)
    return ids_TC.gather(1, values_TV.gather(1, ids_TC).topk(count, dim=1).indices)
