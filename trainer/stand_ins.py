"""What stands where an MLP stood: modules that ask a function for the answer, and how they are put in and out.

Shapes: B rows, T tokens, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from torch import Tensor, nn

Mlp = Callable[[], Tensor]
"""Gives what the untouched MLP would have answered."""

StandIn = Callable[[Tensor, Mlp], Tensor]
"""From the MLP's input [B, T, I], and the MLP, to an output [B, T, O]."""


Given = TypeVar("Given")


def in_blocks(
    first: int, span: int, answer: Callable[[Tensor, Given], Tensor]
) -> dict[int, Callable[[Tensor, Given], Tensor]]:
    """One answer for several blocks: worked out at the first, and its parts handed out at the others of the same pass.

    Args:
        first: number of the block whose MLP's input is read.
        span: how many blocks, from that one on.
        answer: gives what all of them are to answer, side by side in the last dimension.
    """
    held: list[Tensor] = []

    def at(part: int, x: Tensor, given: Given) -> Tensor:
        if part == 0:
            held[:] = answer(x, given).chunk(span, dim=-1)
        return held[part].to(x.device)

    return {first + part: partial(at, part) for part in range(span)}


def mount(block: nn.Module, mlp: tuple[str, str], stand_in: StandIn, stack: ExitStack) -> None:
    """Put a stand-in where a block's MLP is, and have ``stack`` put the original back.

    Args:
        block: holds the MLP.
        mlp: names of its first and last module in the block; the same where it is one module.
        stand_in: answers from now on.
        stack: restores when it is left.
    """
    first_name, last_name = mlp
    if first_name == last_name:
        _swap(block, first_name, _Whole(getattr(block, first_name), stand_in), stack)
        return
    first = _First(getattr(block, first_name))
    stack.callback(block.register_forward_pre_hook(first.before_block, with_kwargs=True).remove)
    _swap(block, last_name, _Last(getattr(block, last_name), first, stand_in), stack)
    _swap(block, first_name, first, stack)


class _Whole(nn.Module):
    """Stands where an MLP that is one module stood."""

    def __init__(self, original: nn.Module, stand_in: StandIn) -> None:
        super().__init__()
        self.original = original
        self.stand_in = stand_in

    def forward(self, x: Tensor) -> Tensor:
        return self.stand_in(x, lambda: self.original(x))


class _First(nn.Module):
    """Stands at the first of two modules that make an MLP, and remembers what went in."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original
        self.seen_BTI: Tensor | None = None
        self._shape: tuple[int, ...] = ()

    def before_block(self, _block: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Note the block's rows and tokens: OPT lays them end to end before its MLP."""
        hidden: Tensor = inputs[0] if inputs else named["hidden_states"]
        self._shape = tuple(hidden.shape[:-1])

    def forward(self, x: Tensor) -> Any:
        self.seen_BTI = x.reshape(*self._shape, x.shape[-1])
        return self.original(x)


class _Last(nn.Module):
    """Stands at the last of two modules that make an MLP."""

    def __init__(self, original: nn.Module, first: _First, stand_in: StandIn) -> None:
        super().__init__()
        self.original = original
        self.first = first
        self.stand_in = stand_in

    def forward(self, hidden: Tensor) -> Tensor:
        seen_BTI = self.first.seen_BTI
        assert seen_BTI is not None
        output = self.stand_in(seen_BTI, lambda: self.original(hidden).reshape(*seen_BTI.shape[:-1], -1))
        return output.reshape(*hidden.shape[:-1], -1)


def _swap(block: nn.Module, name: str, module: nn.Module, stack: ExitStack) -> None:
    stack.callback(setattr, block, name, getattr(block, name))
    setattr(block, name, module)
