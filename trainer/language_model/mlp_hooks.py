"""Replacing the MLP of a block by a function, and restoring the original.

Shapes: B rows, T tokens, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch import Tensor, nn

Mlp = Callable[[], Tensor]
"""Returns the output of the original MLP."""

MlpFunction = Callable[[Tensor, Mlp], Tensor]
"""Maps the MLP's input [B, T, I] and the original MLP to an output [B, T, O]."""


def replace_mlp(block: nn.Module, mlp: tuple[str, str], function: MlpFunction, stack: ExitStack) -> None:
    """Replace a block's MLP by a function until ``stack`` is closed.

    Args:
        block: the block of the MLP.
        mlp: names of the MLP's first and last module in the block; equal if the MLP is one module.
        function: computes the output in place of the MLP.
        stack: restores the original MLP when it is closed.
    """
    first_name, last_name = mlp
    if first_name == last_name:
        _swap(block, first_name, _OneModule(getattr(block, first_name), function), stack)
        return
    first = _FirstModule(getattr(block, first_name))
    stack.callback(block.register_forward_pre_hook(first.before_block, with_kwargs=True).remove)
    _swap(block, last_name, _LastModule(getattr(block, last_name), first, function), stack)
    _swap(block, first_name, first, stack)


class _OneModule(nn.Module):
    """Replacement of an MLP that is one module."""

    def __init__(self, original: nn.Module, function: MlpFunction) -> None:
        super().__init__()
        self.original = original
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, lambda: self.original(x))


class _FirstModule(nn.Module):
    """Replacement of the first of two modules that form an MLP; records the MLP's input."""

    def __init__(self, original: nn.Module) -> None:
        super().__init__()
        self.original = original
        self.input_BTI: Tensor | None = None
        self._shape: tuple[int, ...] = ()

    def before_block(self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the block's [B, T], because OPT flattens them before its MLP."""
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        self._shape = tuple(hidden.shape[:-1])

    def forward(self, x: Tensor) -> Any:
        self.input_BTI = x.reshape(*self._shape, x.shape[-1])
        return self.original(x)


class _LastModule(nn.Module):
    """Replacement of the last of two modules that form an MLP."""

    def __init__(self, original: nn.Module, first: _FirstModule, function: MlpFunction) -> None:
        super().__init__()
        self.original = original
        self.first = first
        self.function = function

    def forward(self, hidden: Tensor) -> Tensor:
        input_BTI = self.first.input_BTI
        assert input_BTI is not None
        output = self.function(input_BTI, lambda: self.original(hidden).reshape(*input_BTI.shape[:-1], -1))
        return output.reshape(*hidden.shape[:-1], -1)


def _swap(block: nn.Module, name: str, module: nn.Module, stack: ExitStack) -> None:
    stack.callback(setattr, block, name, getattr(block, name))
    setattr(block, name, module)
