"""Effects of experts on the next token: direct ones, and those through the whole model by its gradient.

**Direct effect.** What the block adds to the residual stream because of the contribution a_n (c_n * zD) is subtracted
after the last block. The final norm and the unembedding are recomputed exactly. Effects through later blocks are not
included.

**Live gradient.** Sparse layers stand beside or instead of MLPs. Attention, norms, MLPs and gates are all
differentiated. To first order, adding a vector d to an MLP's output at token t changes the target by the dot product of
d and the gradient there. So one backward pass predicts the effect of every expert of every layer at once (attribution
patching; Syed et al., Attribution Patching Outperforms Automated Circuit Discovery, 2023):

    ablating an active expert n:            -(a_n c_n * zD) . gradient
    adding one unit of any expert n:          (u_n c_n * zD) . gradient

**Weights.** An expert is the linear map W_n = D diag(c_n), which is analysed without a text.

Shapes: B rows, T tokens, P = B * T tokens of all rows, S positions whose next token is read, K active, N experts.
Widths: I input, H hidden, O output, M dense output, W residual; V vocabulary. W_n is [H, O].
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mxd.trainer.analysis.results import (
    Controls,
    ExpertEffect,
    ExpertMap,
    ExpertWrites,
    OutputDimension,
    SingularDirection,
    TokenEffect,
    supported_words,
)
from mxd.trainer.config.analysis import (
    ContinuationTarget,
    DifferenceTarget,
    Errors,
    ExpertTarget,
    SetTarget,
    Target,
    TokenTarget,
    target_tokens,
)
from mxd.trainer.config.steering import SteeringMode
from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.language_model.kv_cache import shared_prefix
from mxd.trainer.language_model.mlp_hooks import EditedMlp, LayerPass, Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import prompt_ids, single_texts
from mxd.trainer.layers.mxd import MxD, Routing, SparseLayer, small_matrix
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import check_fits

NUM_TOKENS = 6


@torch.no_grad()
def direct_effects(
    language_model: LanguageModel, run: Run, text: str | Sequence[int], position: int, k: int | None = None
) -> tuple[ExpertEffect, ...]:
    """Return the direct effects of the experts active on the token at ``position``, largest activation first.

    Args:
        text: the text, or its token ids.
        position: index of the token. 0 is the start token.
        k: number of active experts per token; by default the run's K.

    Raises:
        TooLongError: the text exceeds the language model's context length.
        UserError: there is no such token, k is too large, the run was trained on another language model, or the
            architecture has no direct effects.
    """
    check_fits(language_model, run)
    ids = prompt_ids(language_model, text, start_token=run.config.text.start_token)
    if not 0 <= position < len(ids):
        raise UserError(f"Unknown token position {position}. The text has tokens 0 to {len(ids) - 1}.")
    layer, sparse_layer = run.config.layer, run.at_k(k)
    ((x_1I, residual_W),) = _read_last_tokens(language_model, layer, sparse_layer, [ids[: position + 1]])
    routing = sparse_layer.to(x_1I.device).route(x_1I)
    active_K = routing.activations_TK[0] > 0
    routing = Routing(*(values[0][active_K].unsqueeze(1) for values in routing))  # a row per expert
    dense_KM = sparse_layer.dense_output(x_1I).expand(len(routing.indices_TK), -1)
    contributions_KO = sparse_layer.contribution(dense_KM, routing)
    added_KW = language_model.additions.of_vectors(layer, ids, [position] * len(contributions_KO), contributions_KO)
    passed_KW = added_KW * language_model.additions.passed_on(layer)
    residual_W = residual_W.to(passed_KW)  # not rounded to the language model's dtype
    residuals_RW = torch.cat([residual_W.unsqueeze(0), residual_W - passed_KW])
    log_p_RV = language_model.unembed(residuals_RW).log_softmax(dim=-1)
    promoted, suppressed = _strongest(language_model, log_p_RV[0] - log_p_RV[1:])
    active = routing.indices_TK[:, 0].tolist(), routing.activations_TK[:, 0].tolist()
    return tuple(ExpertEffect(*values) for values in zip(*active, promoted, suppressed, strict=True))


Examples = Sequence[tuple[Sequence[int], int]]
"""Token ids of a sequence, and the position of a token on which an expert is active."""


@torch.no_grad()
def expert_writes(
    language_model: LanguageModel,
    run: Run,
    expert: int,
    examples: Examples,
    controls: Sequence[int] = (),
    units: Mapping[int, float] = MappingProxyType({}),
    label: str | None = None,
) -> ExpertWrites:
    """Return what an expert writes: its direct effects, averaged over examples, and those of other experts in its
    place.

    The vector that the expert adds is replaced by that of each control, with as many units of activation. Examples on
    which the expert is inactive, because the layer was trained further since, are left out.

    Args:
        units: 99th percentiles of the activations; 1 by default.
        label: the user label, whose words are tested.

    Raises:
        UserError: the run was trained on another language model, or the architecture has no direct effects.
    """
    check_fits(language_model, run)
    layer, additions = run.config.layer, language_model.additions
    passed_on = additions.passed_on(layer)
    prefixes = [list(ids[: at + 1]) for ids, at in examples]
    expert_R1 = torch.tensor([expert, *controls]).unsqueeze(1)
    unit_R1 = torch.tensor([units.get(each) or 1.0 for each in (expert, *controls)]).unsqueeze(1)
    changes_RV = list[Tensor]()
    last_tokens = _read_last_tokens(language_model, layer, run.layer, prefixes)
    for ids, (x_1I, residual_W) in zip(prefixes, last_tokens, strict=True):
        sparse_layer = run.layer.to(x_1I.device)
        routing = sparse_layer.route(x_1I)
        activation = float((routing.activations_TK * (routing.indices_TK == expert)).sum())
        if activation <= 0:
            continue
        routing_R1 = Routing(*(each.to(x_1I.device) for each in (activation / unit_R1[0] * unit_R1, expert_R1)))
        vector_RO = sparse_layer.contribution(sparse_layer.dense_output(x_1I).expand(len(expert_R1), -1), routing_R1)
        # The vector of the expert is removed, those of the others are added.
        sign_R1 = torch.tensor([1.0] + [-1.0] * len(controls)).to(vector_RO).unsqueeze(1)
        position_R = [len(ids) - 1] * len(vector_RO)
        added_RW = sign_R1 * additions.of_vectors(layer, ids, position_R, sign_R1 * vector_RO) * passed_on
        without_1W = residual_W.to(added_RW) - added_RW[:1]
        log_p_RV = language_model.unembed(torch.cat([without_1W, without_1W + added_RW])).log_softmax(dim=-1)
        changes_RV.append(log_p_RV[1:] - log_p_RV[:1])
    if not changes_RV:
        return ExpertWrites(expert, 0, (), (), Controls.compare([0.0], [0.0], (), 0), None)
    change_RV = torch.stack(changes_RV).mean(dim=0)
    (promoted,), (suppressed,) = _strongest(language_model, change_RV[:1])
    rises, falls = change_RV.amax(dim=1).tolist(), change_RV.amin(dim=1).tolist()
    compared = Controls.compare(rises, falls, controls, len(changes_RV))
    words = {word: change_RV[:, token].tolist() for word, token in _words_of(language_model, label or "").items()}
    supported = supported_words(words, compared.exceeded)
    return ExpertWrites(expert, len(changes_RV), promoted, suppressed, compared, supported)


def _words_of(language_model: LanguageModel, label: str) -> dict[str, int]:
    """Words and signs of a label, each with its token. Those of several tokens are left out."""
    tokens: dict[str, int] = {}
    for word in re.findall(r"[^\W\d_]+|[^\w\s,.;:“”‘’\"']", label):
        for text in (f" {word}", word):
            ids = language_model.tokenizer(text, add_special_tokens=False)["input_ids"]
            if len(ids) == 1:
                tokens.setdefault(word, ids[0])
    return tokens


def _read_last_tokens(
    language_model: LanguageModel, layer: int, sparse_layer: SparseLayer, sequences: Sequence[Sequence[int]]
) -> list[tuple[Tensor, Tensor]]:
    """Input of the sparse layer at each sequence's last token, [1, I] in float32, and the residual stream after the
    last block, [W].

    One forward pass of all sequences, padded on the right, which changes no earlier token of a causal model: short
    sequences cost as much for reading the weights as for computing.
    """
    if not sequences:
        return []
    passes = list[LayerPass]()
    rows = [torch.tensor(list(ids)) for ids in sequences]
    with language_model.replace_mlps({layer: EditedMlp(sparse_layer, passes.append)}):
        residual_BTW = language_model.residual(pad_sequence(rows, batch_first=True))
    ends = [(row, len(ids) - 1) for row, ids in enumerate(sequences)]
    return [(passes[0].x_STI[row, at : at + 1].float(), residual_BTW[row, at]) for row, at in ends]


TokenEffects = tuple[TokenEffect, ...]


def _strongest(language_model: LanguageModel, changes_KV: Tensor) -> tuple[list[TokenEffects], list[TokenEffects]]:
    """The largest rises and falls of log p of each row."""
    up, down = _largest(language_model, changes_KV), _largest(language_model, -changes_KV)
    return up, [tuple(replace(it, change=-it.change) for it in effects) for effects in down]


def _largest(language_model: LanguageModel, values_KV: Tensor) -> list[TokenEffects]:
    """Tokens with the largest values of each row."""
    top = values_KV.topk(NUM_TOKENS, dim=1)
    texts = single_texts(language_model, set(top.indices.flatten().tolist()))
    rows = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [tuple(TokenEffect(i, texts[i], value) for i, value in zip(*row, strict=True)) for row in rows]


Change = Callable[[int, LayerPass], Tensor | None]
"""Maps a layer and its pass to what is added to its output, [P, O]."""


Layers = Mapping[int, SparseLayer]
"""Sparse layers by the index of their block."""


@dataclass(frozen=True, eq=False)
class Forward:
    """Tensors of a forward pass. With gradients, they are part of one graph."""

    sparse_layers: Layers
    inputs_BTI: Mapping[int, Tensor]
    """Input of each layer's MLP."""
    outputs_BTO: Mapping[int, Tensor]
    """Additions of each layer's MLP, or its replacement, to the residual stream."""
    embedding_BTW: Tensor | None
    """Input of the first block, a leaf; None in a pass without gradients from the embedding."""
    logits_BSV: Tensor
    """Logits after the last prompt token and each token of the continuation, in float32."""

    def input_of(self, layer: int) -> Tensor:
        """Input of a layer's MLP in the first row, [T, I] in float32 and without gradient."""
        return self.inputs_BTI[layer][0].detach().float()

    def gradients(self, value_B: Tensor) -> dict[int, Tensor]:
        """Gradient of the only row's value at each sparse layer's output, [T, O]."""
        gradients = gradients_of(value_B, [self.outputs_BTO[layer] for layer in self.sparse_layers])
        return {layer: it[0] for layer, it in zip(self.sparse_layers, gradients, strict=True)}

    def score(self, layer: int, position: int, expert: int) -> Tensor:
        """Gate score of an expert on one token in each row, without its bias, [B]. Top-k and ReLU come after it."""
        x_BI = self.inputs_BTI[layer][:, position].float()
        return x_BI @ self.sparse_layers[layer].gate.rows(torch.tensor([expert])).to(x_BI)[0]

    def activation(self, layer: int, position: int, expert: int) -> Tensor:
        """Gate activation of an expert on one token in each row, [B].

        Its gradient is that of the expert's score. So an inactive expert has one too.
        """
        routing = self.sparse_layers[layer].route(self.inputs_BTI[layer][:, position].float())
        activation_B = (routing.activations_TK * (routing.indices_TK == expert)).sum(-1).detach()
        score_B = self.score(layer, position, expert)
        return activation_B + (score_B - score_B.detach())


@dataclass(frozen=True, eq=False)
class Reading:
    """A target for a given prompt of a language model: where it is read, and which tokens it means."""

    language_model: LanguageModel
    target: Target
    ids: tuple[int, ...]
    """Token ids of the prompt, then of the continuation."""
    prompt_tokens: int
    layers: Mapping[str, int]
    """Layer of each run."""

    @property
    def fed_ids(self) -> tuple[int, ...]:
        """Ids that the language model reads: all but the last token of the continuation."""
        return self.ids[: max(self.prompt_tokens, len(self.ids) - 1)]

    def with_token(self, forward: Forward) -> Self:
        """The reading with the most probable token of an unchanged pass filled in, if none is given."""
        if isinstance(self.target, TokenTarget) and self.target.token is None:
            return replace(self, target=TokenTarget(token=int(forward.logits_BSV[0, 0].argmax())))
        return self

    def value(self, forward: Forward) -> Tensor:
        """Value of the target in each row, [B]; differentiable in a pass with gradients."""
        with torch.inference_mode(False), torch.enable_grad():
            logits_BV = forward.logits_BSV[:, 0]
            match self.target:
                case TokenTarget(token=token):
                    assert token is not None
                    return logits_BV[:, token] - logits_BV.mean(-1)
                case DifferenceTarget(token=token, other=other):
                    return logits_BV[:, token] - logits_BV[:, other]
                case SetTarget(tokens=tokens):
                    return logits_BV.log_softmax(-1)[:, sorted(set(tokens))].logsumexp(-1)
                case ContinuationTarget():
                    return self.continuation_log_p(forward.logits_BSV).sum(1)
                case ExpertTarget(run=run, expert=expert):
                    return forward.activation(self.layers[run], self.prompt_tokens - 1, expert)

    def continuation_log_p(self, logits_BSV: Tensor) -> Tensor:
        """Log-probability of each token of the continuation in each row, [B, S]."""
        ids_S = torch.tensor(self.ids[self.prompt_tokens :], device=logits_BSV.device)
        return logits_BSV.log_softmax(-1).gather(2, ids_S.expand(len(logits_BSV), -1).unsqueeze(2))[..., 0]


def layers_of(language_model: LanguageModel, runs: Sequence[Run]) -> dict[int, SparseLayer]:
    """Sparse layers of some runs by layer index, on their MLPs' devices and without gradients for their parameters."""
    return {
        run.config.layer: run.layer.to(language_model.device_of(run.config.layer)).requires_grad_(False).eval()
        for run in sorted(runs, key=lambda run: run.config.layer)
    }


def read_target(language_model: LanguageModel, ids: Sequence[int], target: Target, runs: Sequence[Run] = ()) -> Reading:
    """Prepare a target for a prompt.

    Raises:
        TooLongError: the continuation exceeds the language model's context length.
        UserError: a token or expert does not exist, or the continuation has no token.
    """
    vocabulary = language_model.config.vocab_size
    for token in target_tokens(target):
        if token >= vocabulary:
            raise UserError(
                f"Unknown target token {token}. {language_model.source} has token ids 0 to {vocabulary - 1}."
            )
    layers = {run.name: run.config.layer for run in runs}
    if isinstance(target, ExpertTarget):
        if target.run not in layers:
            raise UserError(f"Unknown run of the target: {target.run!r}. Choose one of: {', '.join(layers)}.")
        count = next(run.layer.config.num_experts for run in runs if run.name == target.run)
        if target.expert >= count:
            raise UserError(f"Unknown target expert {target.expert}. {target.run} has experts 0 to {count - 1}.")
    continuation: list[int] = []
    if isinstance(target, ContinuationTarget):
        continuation = language_model.tokenizer(target.text, add_special_tokens=False, verbose=False)["input_ids"]
        if not continuation:
            raise UserError(f"The continuation {target.text!r} has no token. Give at least one word.")
        if len(ids) + len(continuation) > language_model.max_tokens:
            raise TooLongError(
                f"The prompt and its continuation are too long: {len(ids) + len(continuation):,} tokens. "
                f"{language_model.source} accepts {language_model.max_tokens:,}. Shorten one of them."
            )
    return Reading(language_model, target, (*ids, *continuation), len(ids), layers)


def differentiable_forward(
    reading: Reading,
    sparse_layers: Layers,
    functions: Mapping[int, MlpFunction] | None = None,
    rows: int = 1,
    from_embedding: bool = False,
) -> Forward:
    """Forward pass with gradients at the outputs of the MLPs in ``functions``. The blocks before the first of them hold
    no graph, which saves memory, unless gradients at the embedding are needed.

    Args:
        functions: functions that compute the outputs of some layers' MLPs; by default the sparse layers' without a
            change, see ``edited_mlps``.
        rows: number of copies of the text.
    """
    functions = edited_mlps(sparse_layers, "kept") if functions is None else functions
    with torch.inference_mode(False), torch.enable_grad():
        return _forward(reading, sparse_layers, functions, rows, 0, from_embedding)


@torch.no_grad()
def changed_forward(
    reading: Reading, sparse_layers: Layers, functions: Mapping[int, MlpFunction], rows: int, first: int = 0
) -> Forward:
    """Forward pass without gradients. The layers before ``first`` are equal in all rows, and computed for one row."""
    with ExitStack() as stack:
        reading.language_model.linear_kernels.apply(stack)
        return _forward(reading, sparse_layers, functions, rows, first)


def gradients_of(value_B: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Gradient of each row's value with respect to tensors of its pass, in float32; 0 where it does not depend."""
    gradients: tuple[Tensor | None, ...] = (None,) * len(tensors)
    if value_B.requires_grad:
        ones_B = torch.ones_like(value_B)
        gradients = torch.autograd.grad(value_B, tensors, ones_B, retain_graph=True, allow_unused=True)
    return [
        torch.zeros_like(tensor, dtype=torch.float32) if gradient is None else gradient.float()
        for tensor, gradient in zip(tensors, gradients, strict=True)
    ]


def expert_products(sparse_layer: SparseLayer, x_TI: Tensor, gradient_TO: Tensor) -> tuple[Tensor, Routing]:
    """Dot product of every active expert's contribution with a gradient of the output, [T, K], and the routing."""
    with torch.no_grad():
        routing, dense_TM = sparse_layer.route(x_TI), sparse_layer.dense_output(x_TI)
    with torch.inference_mode(False), torch.enable_grad():
        activations_TK = routing.activations_TK.clone().requires_grad_()
        experts_TO = sparse_layer.contribution(dense_TM.clone(), Routing(activations_TK, routing.indices_TK.clone()))
        # The contribution is linear in the activations, so this derivative is exact.
        (slope_TK,) = torch.autograd.grad(experts_TO, activations_TK, gradient_TO)
    return slope_TK * routing.activations_TK, routing


def edited_mlps(
    sparse_layers: Layers, errors: Errors, change: Change = lambda _layer, _layer_pass: None
) -> dict[int, MlpFunction]:
    """Functions that compute the outputs of MLPs or, with ``errors`` dropped, of the layers, and add ``change``."""
    mode: SteeringMode = "residual" if errors == "kept" else "replace"
    return {layer: EditedMlp(it, partial(change, layer), mode) for layer, it in sparse_layers.items()}


def _forward(
    reading: Reading,
    sparse_layers: Layers,
    functions: Mapping[int, MlpFunction],
    rows: int,
    first: int,
    from_embedding: bool = False,
) -> Forward:
    language_model = reading.language_model
    inputs, outputs, embeddings = dict[int, Tensor](), dict[int, Tensor](), list[Tensor]()

    def record(layer: int, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        inputs[layer], outputs[layer] = x_BTI, functions[layer](x_BTI, mlp)
        if torch.is_grad_enabled() and not outputs[layer].requires_grad:
            outputs[layer].requires_grad_()  # the first one
        return outputs[layer].clone() if torch.is_grad_enabled() else outputs[layer]  # some blocks add to it in place

    def before_blocks(_block: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        embedding_BTW = args[0] if args else named["hidden_states"]
        embeddings.append(embedding_BTW.detach().clone().requires_grad_())
        embedding_BTW = embeddings[0].clone()  # some blocks change their input in place
        return ((embedding_BTW, *args[1:]), named) if args else (args, {**named, "hidden_states": embedding_BTW})

    blocks = language_model.architecture.blocks
    shares = rows > 1 and first > 0 and language_model.can_share_prefix(first)
    ids_BT = torch.tensor([reading.fed_ids]).expand(1 if shares else rows, -1)
    with ExitStack() as stack:
        if shares:
            stack.enter_context(shared_prefix(blocks, first, [0] * rows))
        if from_embedding:
            stack.callback(blocks[0].register_forward_pre_hook(before_blocks, with_kwargs=True).remove)
        stack.enter_context(language_model.replace_mlps({layer: partial(record, layer) for layer in functions}))
        residual_BTW = language_model.residual(ids_BT)
    read_BSW = residual_BTW[:, reading.prompt_tokens - 1 :]
    logits_RV = language_model.unembed(read_BSW.reshape(-1, read_BSW.shape[-1]))
    logits_BSV = logits_RV.reshape(*read_BSW.shape[:2], -1)
    return Forward(sparse_layers, inputs, outputs, embeddings[0] if embeddings else None, logits_BSV)


NUM_DIRECTIONS = 3
NUM_DIMENSIONS = 8
SMALL_SCALING = 0.1
"""Threshold of small entries of c_n, relative to the dimension's root mean square over all experts."""
MAX_EXACT_WIDTH = 1024
"""Width of the smaller side up to which the SVD is exact. Above it is randomised (Halko et al., arXiv 0909.4061)."""
SKETCH, ITERATIONS = 32, 8


@torch.no_grad()
def expert_map(language_model: LanguageModel, run: Run, expert: int) -> ExpertMap:
    """Decompose an expert's weight matrix. Raises UserError if the run's experts are vectors, as in a transcoder, or
    the run was trained on another language model."""
    check_fits(language_model, run)
    layer = run.layer
    if not isinstance(layer, MxD):
        raise UserError(f"The experts of a {run.config.method} are vectors. Only matrices can be decomposed.")
    shares_R, vectors_RO, stable_rank = _singular_directions(layer, expert)
    directions: tuple[SingularDirection, ...] = ()
    if len(shares_R):  # with the tokens that each end promotes, by what the block adds if its MLP writes only that
        ends_RO = torch.cat([vectors_RO, -vectors_RO]).to(language_model.device)
        logits_RV = language_model.unembed(language_model.additions.of_directions(run.config.layer, ends_RO))
        ends, count = _largest(language_model, logits_RV - logits_RV.mean(dim=1, keepdim=True)), len(shares_R)
        rows = zip(shares_R.tolist(), ends[:count], ends[count:], strict=True)
        directions = tuple(SingularDirection(*row) for row in rows)
    if not layer.mixes_outputs:
        return ExpertMap(stable_rank, directions, (), (), None)
    scaling_O = layer.scaling_NO[expert]
    typical_O = layer.scaling_NO.square().mean(dim=0).sqrt().clamp_min(1e-12)
    relative_O = scaling_O.abs() / typical_O
    order_O = relative_O.argsort(descending=True, stable=True)
    largest, smallest = (
        tuple(map(OutputDimension, ids_D.tolist(), scaling_O[ids_D].tolist(), relative_O[ids_D].tolist()))
        for ids_D in (order_O[:NUM_DIMENSIONS], order_O.flip(0)[:NUM_DIMENSIONS])
    )
    return ExpertMap(stable_rank, directions, largest, smallest, float((relative_O < SMALL_SCALING).float().mean()))


def _singular_directions(mxd: MxD, expert: int) -> tuple[Tensor, Tensor, float]:
    """Shares, [R], and right singular vectors, [R, O], of the leading directions, and the stable rank."""
    matrix_HO = mxd.expert_matrix(expert).float().cpu()  # as small_matrix; the sketch uses the CPU's generator
    if min(matrix_HO.shape) <= MAX_EXACT_WIDTH:
        values_R, vectors_RO = torch.linalg.svd(small_matrix(mxd, expert), full_matrices=False)[1:]
    else:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            _, values_R, vectors_OR = torch.svd_lowrank(matrix_HO, SKETCH, ITERATIONS)
        vectors_RO = vectors_OR.T
    squares_R = values_R.square()
    squared_norm = matrix_HO.square().sum().clamp_min(torch.finfo(matrix_HO.dtype).tiny)
    leading = slice(min(NUM_DIRECTIONS, int((squares_R > 0).sum())))
    largest = float(squares_R[0])
    return squares_R[leading] / squared_norm, vectors_RO[leading], float(squared_norm) / largest if largest > 0 else 0.0
