"""Agreement of the Jacobians of a layer and of the MLP that it replaces, at held-out inputs.

A low error says that the outputs agree at the inputs; it does not say that both would change in the same way. So the
change of both outputs along the same direction is compared: the cosine similarity of J_layer v and J_MLP v. Experts
are held at the selected ones, as a derivative requires. (Anthropic's post on MOLT compares Jacobians with another
measure, Transformer Circuits updates, 2025.)

Shapes: S sequences, L tokens of a sequence, T sampled tokens of all sequences, D directions, I input width, O output
width, W width of the residual stream.
"""

import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from importlib import import_module

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.evaluation.metrics import EvaluatedText
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.residuals import start_at
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.utils.bootstrap import Bootstrap, Interval

DIRECTIONS = 8
"""Number of directions of each kind per token."""


@dataclass(frozen=True)
class JacobianAgreement:
    """Mean cosine similarities of Jacobian-vector products of the layer and of the MLP, at sampled tokens.

    1: both change in the same direction. The intervals resample the sequences of the tokens.
    """

    tokens: int
    """Number of sampled tokens; the first token of a sequence is never sampled."""
    directions: int
    """Number of directions of each kind per token."""
    random: Interval
    """Along random directions."""
    data: Interval
    """Along differences to other sampled inputs."""
    random_control: Interval
    """As ``random``, with the MLP's Jacobian at another token."""
    data_control: Interval
    """As ``data``, with the MLP's Jacobian at another token."""


@torch.no_grad()
def measure_jacobians(
    text: EvaluatedText, layer: int, sparse_layer: SparseLayer, tokens: int, bootstrap: Bootstrap, seed: int
) -> JacobianAgreement | None:
    """Compare Jacobian-vector products at about ``tokens`` tokens, as many of each sequence. None if no tokens are
    wanted or there are fewer than two."""
    language_model, ids_SL, residuals = text.language_model, text.ids_SL, text.residuals
    per_sequence = min(-(-tokens // len(ids_SL)), ids_SL.shape[1] - 1)
    if per_sequence * len(ids_SL) < 2:
        return None
    load_forward_derivatives()
    generator = torch.Generator().manual_seed(seed)
    length, sampled = ids_SL.shape[1], []
    for number, part_SL in enumerate(ids_SL.split(SEQUENCES_PER_FORWARD)):
        with residuals.continued(layer, number * SEQUENCES_PER_FORWARD, part_SL) as ids_RL:
            part_TI = language_model.capture(layer, ids_RL).input_TI.float()
        for input_LI in part_TI.split(length):
            positions = 1 + torch.randperm(length - 1, generator=generator)[:per_sequence]
            sampled.append(input_LI[positions.to(input_LI.device)])
    input_TI = torch.cat(sampled)
    random_DTI = torch.randn(DIRECTIONS, *input_TI.shape, generator=generator).to(input_TI.device)
    # Distances to other tokens, never 0 modulo T.
    shift_D1 = torch.randint(1, len(input_TI), (DIRECTIONS, 1), generator=generator)
    others_DT = (torch.arange(len(input_TI)) + shift_D1) % len(input_TI)
    data_DTI = input_TI[others_DT.to(input_TI.device)] - input_TI
    control_T, values = others_DT[0].to(input_TI.device), []
    for direction_DTI in (random_DTI, data_DTI):
        # Mean over directions of the cosine of J_layer v and J_MLP v, the latter at the same token and at another one.
        total_2T = torch.zeros(2, len(input_TI), device=input_TI.device)
        with ExitStack() as stack:
            if residuals.can_continue(layer):  # skip the blocks before the layer: its MLP's input is replaced anyway
                shape = (len(input_TI), 1, language_model.config.hidden_size)
                device = language_model.device_of(layer)
                hidden_T1W = torch.zeros(shape, dtype=language_model.dtype, device=device)
                stack.enter_context(start_at(language_model.architecture.blocks, layer, hidden_T1W))
            for direction_TI in direction_DTI:
                own_TO = _jvp(language_model, layer, input_TI, direction_TI, sparse_layer)
                for total_T, mlp_input_TI in zip(total_2T, (input_TI, input_TI[control_T]), strict=True):
                    mlp_TO = _jvp(language_model, layer, mlp_input_TI, direction_TI, None)
                    total_T += F.cosine_similarity(own_TO, mlp_TO.to(own_TO.device), dim=1)
        cosines_2T = total_2T / DIRECTIONS
        for per_sequence_S in cosines_2T.unflatten(1, (len(ids_SL), per_sequence)).mean(2):
            values.append(bootstrap.mean(np.asarray(per_sequence_S.cpu().double())))
    random, random_control, data, data_control = values
    return JacobianAgreement(len(input_TI), DIRECTIONS, random, data, random_control, data_control)


@cache
def load_forward_derivatives() -> None:
    """Load the rules that torch otherwise compiles on first use, with a warning about its own code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import_module("torch._decomp.decompositions_for_jvp")


def _jvp(
    language_model: LanguageModel, layer: int, input_TI: Tensor, direction_TI: Tensor, sparse_layer: SparseLayer | None
) -> Tensor:
    """Derivative of the MLP's output along directions of its input, or of the sparse layer's instead, [T, O]."""
    with forward_ad.dual_level():
        dual_TI = forward_ad.make_dual(input_TI, direction_TI)
        if sparse_layer is None or sparse_layer.reads == "mlp-output":
            output_TO = _mlp_output(language_model, layer, dual_TI)
        if sparse_layer is not None:
            read = output_TO.float() if sparse_layer.reads == "mlp-output" else dual_TI
            output_TO = sparse_layer(read).output_TO
        tangent_TO: Tensor | None = forward_ad.unpack_dual(output_TO).tangent
        if tangent_TO is None:
            # A layer may be constant around an input. An MLP is not: one of its operations has dropped the derivative.
            assert sparse_layer is not None, "an operation of the MLP has no forward derivative"
            return torch.zeros_like(output_TO)
        return tangent_TO.float()


def _mlp_output(language_model: LanguageModel, layer: int, input_TI: Tensor) -> Tensor:
    """Output [T, O] of an MLP for given inputs, in a forward pass of one token per row.

    The input of the MLP's first module is replaced. This works in every architecture, wherever the MLP is in its block.
    """
    first = getattr(language_model.architecture.block(layer), language_model.architecture.mlp_names(layer)[0])
    ids_T1 = torch.zeros(len(input_TI), 1, dtype=torch.int64, device=language_model.device)

    def replace_input(_module: object, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (input_TI.to(args[0].dtype).reshape(args[0].shape), *args[1:])

    handle = first.register_forward_pre_hook(replace_input)
    try:
        captured: MlpActivations = language_model.capture(layer, ids_T1)
    finally:
        handle.remove()
    return captured.output_TO
