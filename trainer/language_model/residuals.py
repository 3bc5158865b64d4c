"""Residual streams: computed once and continued several times, and what a block adds because of its MLP's output.

Most blocks add the MLP's output itself. Others normalise it first (Gemma 2, OLMo 2), multiply it (Granite), scale the
whole stream (Gemma 4) or normalise the sum (OPT-350m). So both are measured: the first as the difference of the block's
outputs with and without the vector, the second with later blocks whose attention and MLP write nothing.

Shapes: B rows, T tokens, O output width of an MLP, W width of the residual stream, V vocabulary, R vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map
from transformers.pytorch_utils import Conv1D

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import HALVES, float32_weights
from mxd.trainer.language_model.mlp_hooks import (
    PROBE_ERRORS,
    Mlp,
    StopForward,
    agrees,
    probed,
    replace_forward,
    rounding,
)

if TYPE_CHECKING:
    from mxd.trainer.language_model.model import LanguageModel

MAX_BYTES = 1 << 30
"""Memory for stored residual streams; those beyond it are computed each time."""


@contextmanager
def start_at(blocks: nn.ModuleList, layer: int, hidden_BTW: Tensor) -> Iterator[None]:
    """Skip the blocks before ``layer`` in the forward passes inside the context: their result, the input of that block,
    is ``hidden_BTW``. The number of blocks as ``layer`` skips all of them."""
    with ExitStack() as stack:
        for block in blocks[: max(layer - 1, 0)]:
            replace_forward(block, lambda *_args, **_kwargs: hidden_BTW, stack)
        for block in blocks[max(layer - 1, 0) : layer]:
            # A copy for every pass, because some blocks change their input in place.
            replace_forward(block, lambda *_args, **_kwargs: hidden_BTW.clone(), stack)
        yield


def residual_at(language_model: LanguageModel, layer: int, ids_BT: Tensor) -> Tensor:
    """Input [B, T, W] of a block, or for the number of blocks, output of the last one; differentiable. Later blocks are
    not computed."""
    blocks = language_model.architecture.blocks
    captured: list[Tensor] = []

    def before(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        captured.append(args[0] if args else kwargs["hidden_states"])
        raise StopForward

    def behind(_block: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        captured.append((output[0] if isinstance(output, tuple | list) else output).clone())
        if language_model.sharding != "fsdp":  # which would miss the end of its root
            raise StopForward

    with ExitStack() as stack:
        if layer < len(blocks):
            stack.callback(blocks[layer].register_forward_pre_hook(before, with_kwargs=True).remove)
        else:
            stack.callback(blocks[-1].register_forward_hook(behind).remove)
        stack.enter_context(suppress(StopForward))
        language_model.module.base_model(input_ids=language_model.on_device(ids_BT), use_cache=False)
    return captured[0]


class Residuals:
    """Residual streams of the sequences of a text, each computed once while there is memory for it."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._language_model = language_model
        self._stored: dict[tuple[int, int], Tensor] = {}
        self._bytes = 0

    @probed
    def can_continue(self, layer: int) -> bool:
        """True if a forward pass can start at a block, as in most architectures."""
        model = self._language_model
        ids_2T = torch.tensor([[1, 2, 3], [3, 1, 1]], device=model.device)
        expected_2TV, hidden_2TW = model.logits(ids_2T), residual_at(model, layer, ids_2T)
        with start_at(model.architecture.blocks, layer, hidden_2TW):
            actual_2TV = model.logits(ids_2T)
        # Some architectures have several residual streams, so that rows are not the first dimension.
        return hidden_2TW.shape[:-1] == ids_2T.shape and agrees(actual_2TV, expected_2TV, model.dtype)

    def has(self, layer: int, first: int, count: int) -> bool:
        return all((layer, first + row) in self._stored for row in range(count))

    def at(self, layer: int, first: int, ids_BT: Tensor) -> Tensor:
        """Input [B, T, W] of a block for the sequences from index ``first`` on, whose token ids are given."""
        if self.has(layer, first, len(ids_BT)):
            return torch.stack([self._stored[layer, first + row] for row in range(len(ids_BT))])
        hidden_BTW = residual_at(self._language_model, layer, ids_BT)
        self.store(layer, first, hidden_BTW)
        return hidden_BTW

    def store(self, layer: int, first: int, hidden_BTW: Tensor) -> None:
        for row, hidden_TW in enumerate(hidden_BTW):
            if (layer, first + row) not in self._stored and self._bytes + hidden_TW.nbytes <= MAX_BYTES:
                self._stored[layer, first + row] = hidden_TW.clone()
                self._bytes += hidden_TW.nbytes

    @contextmanager
    def continued(self, layer: int, first: int, ids_BT: Tensor, copies: int = 1) -> Iterator[Tensor]:
        """Start forward passes over these sequences at a block; yields the token ids to pass, [B x copies, T]. The
        copies of a sequence follow each other."""
        ids_RT = ids_BT.repeat_interleave(copies, dim=0)
        if not self.can_continue(layer):
            yield ids_RT
            return
        hidden_BTW = self.at(layer, first, ids_BT)
        with start_at(self._language_model.architecture.blocks, layer, hidden_BTW.repeat_interleave(copies, dim=0)):
            yield ids_RT


ROWS_AT_ONCE = 32
SAMPLE_IDS = (1, 2, 3, 4)


class Additions:
    """Additions of the blocks of a language model to the residual stream. Each block is tested once."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._language_model = language_model
        self.adds_output = cache(self._test_adds_output)
        self._factor = cache(self._measured_scale)

    @torch.no_grad()
    def of_vectors(self, layer: int, ids: Sequence[int], position_R: Sequence[int], vector_RO: Tensor) -> Tensor:
        """Addition of a block because its MLP's output contains vectors, [R, W] in float32. Each of the vectors, at its
        position in the text, is removed from the MLP's output alone. There may be none. Raises UserError if the block's
        residual stream is not [B, T, W]."""
        if not len(position_R) or self.adds_output(layer):
            return vector_RO.float()
        parts = [slice(start, start + ROWS_AT_ONCE) for start in range(0, len(position_R), ROWS_AT_ONCE)]
        return torch.cat([self._differences(layer, ids, position_R[part], vector_RO[part]) for part in parts])

    @torch.no_grad()
    def of_sequence(self, layer: int, ids: Sequence[int], vector_TO: Tensor) -> Tensor:
        """Addition of a block at every token because its MLP's output contains a vector there, [T, W] in float32.
        Errors as ``of_vectors``."""
        if self.adds_output(layer):
            return vector_TO.float()
        stream_2TW = self._block_outputs(layer, ids, lambda output_TO: torch.stack([output_TO, output_TO - vector_TO]))
        return stream_2TW[0] - stream_2TW[1]

    @torch.no_grad()
    def of_directions(self, layer: int, direction_RO: Tensor) -> Tensor:
        """Addition of a block if its MLP writes only a vector, [R, W] in float32. Raises UserError if the block
        normalises the sum, so this depends on the text; or as ``of_vectors``."""
        if self.adds_output(layer):
            return direction_RO.float()
        if self._scale(layer) is None:
            raise UserError(self._refusal(layer))
        nothing_1O = torch.zeros_like(direction_RO[:1])

        def only(output_TO: Tensor) -> Tensor:
            return torch.cat([nothing_1O, direction_RO]).to(output_TO).unsqueeze(1).repeat(1, len(output_TO), 1)

        stream_RTW = self._block_outputs(layer, SAMPLE_IDS, only)
        return stream_RTW[1:, -1] - stream_RTW[0, -1]

    def passed_on(self, layer: int) -> float:
        """Factor with which the blocks after ``layer`` pass the residual stream on; 1 in most architectures. Raises
        UserError if they do not pass it on as a multiple, so there is no direct effect."""
        if not self.has_direct_effects(layer):
            raise UserError(self._refusal(layer))
        return self._scale(layer + 1) or 0.0

    def has_direct_effects(self, layer: int) -> bool:
        """True if the blocks after ``layer`` pass a multiple of the residual stream on."""
        return self._scale(layer + 1) is not None

    def _refusal(self, layer: int) -> str:
        return (
            f"Direct effects of layer {layer} do not exist in {self._language_model.source}: its blocks do not add to "
            "one residual stream, but normalise or mix it. Measure the whole effect instead, by steering or ablation."
        )

    def _test_adds_output(self, layer: int) -> bool:
        """True if a block adds its MLP's output itself to the residual stream."""
        width = self._language_model.architecture.mlp_shape(layer).output_width
        generator = torch.Generator().manual_seed(0)
        vector_1O = torch.randn(1, width, generator=generator).to(self._language_model.device_of(layer))
        last = len(SAMPLE_IDS) - 1
        # Not much smaller than the stream, so that the difference has digits left in half precision.
        scale = float(self._block_outputs(layer, SAMPLE_IDS, lambda output_TO: output_TO.unsqueeze(0)).std())
        vector_1O *= max(scale, torch.finfo(torch.float32).tiny)
        added_1W = self._differences(layer, SAMPLE_IDS, [last], vector_1O)
        return added_1W.shape == vector_1O.shape and self._is_close(added_1W, vector_1O)

    def _differences(self, layer: int, ids: Sequence[int], position_R: Sequence[int], vector_RO: Tensor) -> Tensor:
        def without(output_TO: Tensor) -> Tensor:
            output_RTO = output_TO.repeat(1 + len(vector_RO), 1, 1)
            for row, (position, vector_O) in enumerate(zip(position_R, vector_RO, strict=True), start=1):
                output_RTO[row, position] -= vector_O.to(output_RTO)
            return output_RTO

        stream_RTW = self._block_outputs(layer, ids[: max(position_R) + 1], without)
        row_R, index_R = torch.arange(1, len(stream_RTW)), torch.tensor(list(position_R))
        return stream_RTW[0, index_R] - stream_RTW[row_R, index_R]

    def _block_outputs(self, layer: int, ids: Sequence[int], outputs: Any) -> Tensor:
        """Outputs [R, T, W] of a block in float32 whose MLP's output [T, O] is replaced by ``outputs`` of it."""
        model, block = self._language_model, self._language_model.architecture.block(layer)

        def replace(_x: Tensor, mlp: Mlp) -> Tensor:
            output_BTO = mlp()
            changed: Tensor = outputs(output_BTO[0])
            return changed.to(output_BTO)

        with torch.no_grad():
            rows = 1
            if not model.can_split_row(layer):
                width, device = model.architecture.mlp_shape(layer).output_width, model.device_of(layer)
                rows = len(outputs(torch.zeros(len(ids), width, device=device)))
            with _in_float32(block), model.replace_mlps({layer: replace}):
                stream_RTW = residual_at(model, layer + 1, torch.tensor([list(ids)] * rows))
        if stream_RTW.dim() != 3:
            raise UserError(self._refusal(layer))
        return stream_RTW.float()

    def _scale(self, first: int) -> float | None:
        return 1.0 if first >= len(self._language_model.architecture.blocks) else self._factor(first)

    @torch.no_grad()
    def _measured_scale(self, first: int) -> float | None:
        """Factor of the blocks from ``first`` on for the residual stream; None if they do more than scale it. Two
        streams that enter the block are compared with what the last block makes of them, if no attention and no MLP
        writes anything."""
        model, blocks = self._language_model, self._language_model.architecture.blocks
        seen: list[Tensor] = []

        def enter(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            hidden_BTW = args[0] if args else kwargs["hidden_states"]
            noise_BTW = torch.randn(hidden_BTW.shape, generator=torch.Generator().manual_seed(len(seen)))
            stream_BTW = noise_BTW.to(hidden_BTW)
            seen.append(stream_BTW.float())
            return ((stream_BTW, *args[1:]), kwargs) if args else (args, {**kwargs, "hidden_states": stream_BTW})

        def zeros(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            if isinstance(output, tuple | list):
                return (torch.zeros_like(output[0]), *output[1:])
            return torch.zeros_like(output)

        with ExitStack() as stack:
            stack.callback(blocks[first].register_forward_pre_hook(enter, with_kwargs=True).remove)
            for layer, block in enumerate(blocks[first:], first):  # no attention and no MLP writes anything
                silent = [module for module in block.modules() if isinstance(module, nn.Linear | Conv1D)]
                with suppress(UserError):  # a block without an MLP
                    silent.append(getattr(block, model.architecture.mlp_names(layer)[1]))
                for module in silent:
                    stack.callback(module.register_forward_hook(zeros).remove)
            try:
                for _ in range(2):
                    seen.append(residual_at(model, len(blocks), torch.tensor([SAMPLE_IDS])).float())
            except PROBE_ERRORS:
                return None
        before_1, after_1, before_2, after_2 = seen
        change_BTW, result_BTW = before_2 - before_1, after_2 - after_1
        if result_BTW.shape != change_BTW.shape or change_BTW.dim() != 3:
            return None
        factor = float((change_BTW * result_BTW).sum() / change_BTW.square().sum())
        if not self._is_close(result_BTW, factor * change_BTW):
            return None
        return 1.0 if abs(factor - 1) < rounding(self._language_model.dtype) else factor

    def _is_close(self, value: Tensor, expected: Tensor) -> bool:
        return bool((value - expected).norm() <= rounding(self._language_model.dtype) * expected.norm())


@contextmanager
def _in_float32(block: nn.Module) -> Iterator[None]:
    """Compute a block in float32, because in half precision a small difference of its outputs is mostly rounding.
    Blocks whose weights are offloaded stay as they are."""
    short = {it.dtype for it in block.parameters()} & set(HALVES)

    def wide(value: Any) -> Any:
        return value.float() if isinstance(value, Tensor) and value.dtype in short else value

    with ExitStack() as stack:
        if stack.enter_context(float32_weights(block)) and short:
            widen = block.register_forward_pre_hook(lambda _, *inputs: tree_map(wide, inputs), with_kwargs=True)
            stack.callback(widen.remove)
        yield
