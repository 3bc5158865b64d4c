"""Residual streams of a text that are computed once and continued from several times.

Shapes: B rows, T tokens, W width of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mxd.trainer.language_model.mlp_hooks import PROBE_ERRORS, agrees, replace_forward

if TYPE_CHECKING:
    from mxd.trainer.language_model.model import LanguageModel

MAX_BYTES = 1 << 30
"""Memory for stored residual streams; those beyond it are computed each time."""


class _Stop(Exception):
    """Ends a forward pass early."""


@contextmanager
def start_at(blocks: nn.ModuleList, layer: int, hidden_BTW: Tensor) -> Iterator[None]:
    """Skip the blocks before ``layer`` in the forward passes inside the context: their result is ``hidden_BTW``.

    Args:
        blocks: all blocks of a language model whose input has B rows of T tokens.
        layer: index of the first block that is computed; the number of blocks skips all of them.
        hidden_BTW: input of that block.
    """
    with ExitStack() as stack:
        for block in blocks[: max(layer - 1, 0)]:
            replace_forward(block, lambda *_args, **_kwargs: hidden_BTW, stack)
        for block in blocks[max(layer - 1, 0) : layer]:
            # A copy for every pass, because some blocks change their input in place.
            replace_forward(block, lambda *_args, **_kwargs: hidden_BTW.clone(), stack)
        yield


def residual_at(language_model: LanguageModel, layer: int, ids_BT: Tensor) -> Tensor:
    """Input [B, T, W] of a block, or for the number of blocks, output of the last one."""
    blocks = language_model.architecture.blocks
    captured: list[Tensor] = []

    def before(_block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        captured.append(args[0] if args else kwargs["hidden_states"])
        raise _Stop

    def behind(_block: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        captured.append(output[0] if isinstance(output, tuple | list) else output)
        raise _Stop

    if layer < len(blocks):
        handle = blocks[layer].register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = blocks[-1].register_forward_hook(behind)
    try:
        language_model.module.base_model(input_ids=language_model.on_device(ids_BT), use_cache=False)
    except _Stop:
        return captured[0]
    finally:
        handle.remove()
    raise AssertionError("a forward pass runs every block")


class Residuals:
    """Residual streams of the sequences of a text, each computed once while there is memory for it."""

    def __init__(self, language_model: LanguageModel) -> None:
        self._language_model = language_model
        self._stored: dict[tuple[int, int], Tensor] = {}
        self._bytes = 0
        self._can_continue: dict[int, bool] = {}

    @property
    def behind_all(self) -> int:
        """Index that stands for the output of the last block."""
        return len(self._language_model.architecture.blocks)

    @torch.no_grad()
    def can_continue(self, layer: int) -> bool:
        """True if a forward pass can start at a block, as in most architectures. Tested once per block."""
        if layer not in self._can_continue:
            model = self._language_model
            ids_2T = torch.tensor([[1, 2, 3], [3, 1, 1]], device=model.device)
            expected_2TV = model.logits(ids_2T)
            try:
                hidden_2TW = residual_at(model, layer, ids_2T)
                with start_at(model.architecture.blocks, layer, hidden_2TW):
                    actual_2TV = model.logits(ids_2T)
            except PROBE_ERRORS:
                hidden_2TW, actual_2TV = expected_2TV, expected_2TV[:0]
            # Some architectures have several residual streams, so that rows are not the first dimension.
            has_rows = hidden_2TW.shape[:-1] == ids_2T.shape
            self._can_continue[layer] = has_rows and agrees(actual_2TV, expected_2TV, model.dtype)
        return self._can_continue[layer]

    def has(self, layer: int, first: int, count: int) -> bool:
        """True if the residual streams of ``count`` sequences from index ``first`` on are stored."""
        return all((layer, first + row) in self._stored for row in range(count))

    def at(self, layer: int, first: int, ids_BT: Tensor) -> Tensor:
        """Input [B, T, W] of a block for the sequences from index ``first`` on, whose token ids are given."""
        if self.has(layer, first, len(ids_BT)):
            return torch.stack([self._stored[layer, first + row] for row in range(len(ids_BT))])
        hidden_BTW = residual_at(self._language_model, layer, ids_BT)
        self.store(layer, first, hidden_BTW)
        return hidden_BTW

    def store(self, layer: int, first: int, hidden_BTW: Tensor) -> None:
        """Keep the residual streams of some sequences, if there is memory for them."""
        for row, hidden_TW in enumerate(hidden_BTW):
            if (layer, first + row) not in self._stored and self._bytes + hidden_TW.nbytes <= MAX_BYTES:
                self._stored[layer, first + row] = hidden_TW.clone()
                self._bytes += hidden_TW.nbytes

    @contextmanager
    def continued(self, layer: int, first: int, ids_BT: Tensor, copies: int = 1) -> Iterator[Tensor]:
        """Start forward passes over these sequences at a block; yields the token ids to pass, [B x copies, T].

        The copies of a sequence follow each other.
        """
        ids_RT = ids_BT.repeat_interleave(copies, dim=0)
        if not self.can_continue(layer):
            yield ids_RT
            return
        hidden_BTW = self.at(layer, first, ids_BT)
        with start_at(self._language_model.architecture.blocks, layer, hidden_BTW.repeat_interleave(copies, dim=0)):
            yield ids_RT
