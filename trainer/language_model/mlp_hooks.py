"""Replacing the MLP of a block by a function, such as one with edits, and restoring the original.

Only the ``forward`` of the MLP's modules is replaced, on the instance. The module tree, the hooks and the parameters of
the model stay as they are, so hooks of the caller and of other libraries keep working.

On x86 CPUs, oneDNN's kernel for packed weights computes the products with constant weights. A generation step
multiplies few rows by large weights, and reading the weights takes most of its time. With weights in oneDNN's layout,
its kernel reads them once for up to 16 rows, in about half the time of PyTorch's, and it is faster for the hundreds of
rows of a routed text too. The kernels round differently. So the choice depends on the processor's architecture and on
the language model only, never on a clock or on earlier requests, and two starts of a server give the same texts.

Shapes: S distinct texts, B or R rows, T tokens, P = R * T tokens, I input width, O output width, K active experts,
M width of the dense output.
"""

import platform
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from mxd.trainer.config.steering import SteeringMode
from mxd.trainer.language_model.loading import is_shard
from mxd.trainer.layers.mxd import Routing, SparseLayer

Mlp = Callable[[], Tensor]
"""Returns the output of the original MLP."""

PROBE_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
"""Error of a forward pass if an architecture cannot do what a probe tries."""


def probed(test: Callable[..., bool]) -> Callable[..., bool]:
    """Decorate a test by forward passes, of an object or of one of its blocks. It runs once for each, and is False
    after ``PROBE_ERRORS``."""

    @wraps(test)
    @torch.no_grad()
    def answer(owner: object, *layer: int) -> bool:
        answers: dict[tuple[object, ...], bool] = vars(owner).setdefault("_probed", {})
        if (key := (test.__name__, *layer)) not in answers:
            answers[key] = False
            with suppress(*PROBE_ERRORS):
                answers[key] = test(owner, *layer)
        return answers[key]

    return answer


MlpFunction = Callable[[Tensor, Mlp], Tensor]
"""Maps the MLP's input [B, T, I] and the original MLP to an output [B, T, O].

The function may keep all three: they are copies, because some blocks change such tensors in place. Falcon adds
attention to its MLP's output, so what was captured would change with it.
"""


class StopForward(Exception):
    """Ends a forward pass early."""


def rounding(dtype: torch.dtype) -> float:
    """Relative difference between two ways of computing the same that counts as rounding. Rows of a batch of another
    size may be computed by another kernel. In half precision, that changes the last bits of every activation."""
    return {torch.float64: 1e-6, torch.float32: 1e-3}.get(dtype, 0.05)


def agrees(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    """True if a probe's logits [..., V] are the expected ones up to the rounding of a forward pass in ``dtype``.
    Relative to their spread, because the logits of some language models are all far from 0."""
    if actual.shape != expected.shape:
        return False
    spread = (expected - expected.mean(dim=-1, keepdim=True)).norm()
    return bool((actual - expected).norm() <= rounding(dtype) * spread)


def replace_mlp(block: nn.Module, mlp: tuple[str, str], function: MlpFunction, stack: ExitStack) -> None:
    """Replace a block's MLP by a function until ``stack`` is closed. ``mlp`` are the names of the MLP's first and last
    module in the block; equal if the MLP is one module."""
    first, last = (getattr(block, name) for name in mlp)
    if first is last:
        replace_forward(last, partial(_one_module, last.forward, function), stack)
        return
    start = _FirstModule(first.forward)
    stack.callback(block.register_forward_pre_hook(start.before_block, with_kwargs=True).remove)
    replace_forward(last, partial(_last_module, last.forward, start, function), stack)
    replace_forward(first, start.forward, stack)


# Partial functions and bound methods instead of closures, because a deep copy of a model copies what they hold.


def _one_module(original: Callable[[Tensor], Tensor], function: MlpFunction, x: Tensor) -> Tensor:
    """Forward pass of an MLP that is one module."""
    return function(x.clone(), lambda: original(x)).clone()


@dataclass(eq=False)
class _FirstModule:
    """Forward pass of the first of two modules that form an MLP; records the MLP's input."""

    original: Callable[[Tensor], Tensor]
    input_BTI: Tensor | None = None
    _shape: tuple[int, ...] = ()

    def before_block(self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record the block's [B, T], because OPT flattens them before its MLP."""
        hidden: Tensor = args[0] if args else kwargs["hidden_states"]
        self._shape = tuple(hidden.shape[:-1])

    def forward(self, x: Tensor) -> Tensor:
        self.input_BTI = x.reshape(*self._shape, x.shape[-1]).clone()
        return self.original(x)


def _last_module(
    original: Callable[[Tensor], Tensor], first: _FirstModule, function: MlpFunction, hidden: Tensor
) -> Tensor:
    """Forward pass of the last of two modules that form an MLP."""
    input_BTI, first.input_BTI = first.input_BTI, None  # so that no activation outlives the forward pass
    assert input_BTI is not None
    output = function(input_BTI, lambda: original(hidden).reshape(*input_BTI.shape[:-1], -1))
    return output.reshape(*hidden.shape[:-1], -1).clone()


def replace_forward(module: nn.Module, forward: Callable[..., Any], stack: ExitStack) -> None:
    """Set ``forward`` on the instance until ``stack`` is closed. Libraries such as accelerate may have set their own.
    In the instance's dictionary, because TransformerLens sets attributes of its modules on others. A library that wraps
    the replacement meanwhile keeps its wrapper, which then computes the original."""
    attributes, switch = vars(module), _Switch(forward, module.forward)
    previous, current = attributes.get("forward"), switch.forward

    def restore() -> None:
        switch.is_on = False
        if attributes.get("forward") is current:
            del attributes["forward"]
            attributes.update({} if previous is None else {"forward": previous})

    stack.callback(restore)
    attributes["forward"] = current


@dataclass(eq=False)
class _Switch:
    """A replacement that can be turned off wherever it is referenced."""

    replacement: Callable[..., Any]
    original: Callable[..., Any]
    is_on: bool = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.replacement(*args, **kwargs) if self.is_on else self.original(*args, **kwargs)


LAYOUT_ROWS = 4
"""Number of rows that the layout of packed weights is chosen for. It serves other numbers equally well."""
MIN_WEIGHTS = 1 << 16
"""Smaller matrices stay in the processor's cache, where the kernels differ little."""
PACKED_BYTES = 1 << 30
"""Most memory for packed copies of the weights of one language model."""


class LinearKernels:
    """Faster ``forward`` functions for the linear modules of a language model. Not thread-safe."""

    def __init__(self, module: nn.Module) -> None:
        bytes_left = PACKED_BYTES
        self._linears: list[_Linear] = []
        for linear in module.modules():
            # In the order of the modules, so that those that have a copy do not depend on what was computed first.
            if type(linear) is nn.Linear and is_suitable(linear.weight) and linear.weight.nbytes <= bytes_left:
                bytes_left -= linear.weight.nbytes
                self._linears.append(_Linear(linear))

    def apply(self, stack: ExitStack) -> None:
        for linear in self._linears:
            replace_forward(linear.module, linear.forward, stack)


@dataclass(eq=False)
class _Linear:
    """A linear module with a packed copy of its weights, which is made when it is first used."""

    module: nn.Linear
    _packed: Tensor | None = None
    _source: tuple[int, int] = (0, 0)

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.module.weight, self.module.bias
        # oneDNN's product has no derivative, and would drop a forward one without a word.
        if not x.numel() or forward_ad.unpack_dual(x).tangent is not None or not is_suitable(weight):
            return F.linear(x, weight, bias)
        source = weight.data_ptr(), weight._version
        if self._packed is None or self._source != source:
            self._packed, self._source = pack(weight), source
        return packed_product(x, self._packed, bias)


def is_suitable(weight: Tensor) -> bool:
    """True for large float32 weights on an x86 CPU for which PyTorch has oneDNN."""
    whole = not weight.is_meta and not is_shard(weight)
    large = weight.numel() >= MIN_WEIGHTS and whole and platform.machine().lower() in ("x86_64", "amd64")
    return (
        large and weight.dtype == torch.float32 and weight.device.type == "cpu" and torch.backends.mkldnn.is_available()
    )


def pack(weight: Tensor) -> Tensor:
    """Copy of a weight [O, I] in oneDNN's layout."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), LAYOUT_ROWS)
    return packed


def packed_product(x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    """``F.linear`` with a packed weight, for at least one row."""
    if x.numel() > x.shape[-1]:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return output
    # For a single row, oneDNN has only a kernel that is 40 times as slow.
    twice = packed_product(x.reshape(1, -1).expand(2, -1), packed, bias)
    return twice[:1].reshape(*x.shape[:-1], -1)


@dataclass(eq=False)
class LayerPass:
    """Outputs of a sparse layer in one forward pass. Each part is computed when it is first used."""

    sparse_layer: SparseLayer
    x_STI: Tensor
    """The layer's input, of any dtype."""
    text_of: Any = ...
    """Index of each row's text, if rows of one text have the same input; by default each row has its own."""

    @cached_property
    def routing(self) -> Routing:
        """Live routing, [P, K]."""
        return Routing(*(self._rows(values_QK) for values_QK in self.sparse_layer.route(self._x_QI)))

    @cached_property
    def dense_PM(self) -> Tensor:
        return self._rows(self.sparse_layer.dense_output(self._x_QI))

    @cached_property
    def mixing_PM(self) -> Tensor:
        return self.sparse_layer.mixing(self.routing)

    @property
    def output_PO(self) -> Tensor:
        return self.sparse_layer.decode_mixed(self.dense_PM, self.mixing_PM)

    def contribution(self, routing: Routing) -> Tensor:
        """Contribution of the experts of another routing of the same tokens to the output, [P, O]."""
        return self.sparse_layer.contribution(self.dense_PM, routing)

    def at(self, positions: Tensor | slice) -> Self:
        return type(self)(self.sparse_layer, self.x_STI[:1, positions])

    @cached_property
    def _x_QI(self) -> Tensor:
        return like_weights(_flatten(self.x_STI), self.sparse_layer)

    def _rows(self, values_QX: Tensor) -> Tensor:
        values_STX = values_QX.reshape(*self.x_STI.shape[:-1], values_QX.shape[-1])
        return _flatten(values_STX[self.text_of])


@dataclass(eq=False)
class EditedMlp:
    """An MLP function with edits, for one sparse layer."""

    sparse_layer: SparseLayer
    """The layer that edits refer to."""
    added: Callable[[LayerPass], Tensor | None] = lambda _layer_pass: None
    """Addition of the edits to the output, [P, O], or to that of more rows if the pass has one; None for nothing."""
    mode: SteeringMode = "residual"
    """Output that it is added to: that of the MLP (``residual``) or of the sparse layer (``replace``)."""

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O], of the dtype and on the device of the MLP's input."""
        reads_output = self.sparse_layer.reads == "mlp-output"
        original = mlp() if self.mode == "residual" or reads_output else None
        layer_pass = LayerPass(self.sparse_layer, original if original is not None and reads_output else x_BTI)
        return self.output(layer_pass, x_BTI, original)

    def output(self, layer_pass: LayerPass, like: Tensor, original_BTO: Tensor | None) -> Tensor:
        """Output [R, T, O] of a pass; the original output is not used in the mode ``replace``."""
        added_PO = self.added(layer_pass)
        if self.mode == "replace":
            output_PO = layer_pass.output_PO if added_PO is None else layer_pass.output_PO + added_PO
            return output_PO.to(like).reshape(-1, *like.shape[1:-1], output_PO.shape[-1])
        assert original_BTO is not None
        if added_PO is None:
            return original_BTO
        # In the precision of the layer's weights, rounded once.
        output_RTO = original_BTO.to(added_PO) + added_PO.reshape(-1, *original_BTO.shape[1:])
        return output_RTO.to(original_BTO)


def like_weights(x_TI: Tensor, sparse_layer: SparseLayer) -> Tensor:
    """Return activations on the device and with the dtype of a layer's weights. Warns, once, if the devices differ."""
    weight = next(sparse_layer.parameters())
    if x_TI.device != weight.device:
        warnings.warn(
            f"The layer is on {weight.device}, the model on {x_TI.device}: activations are copied in every forward "
            "pass. Move the layer with layer.to(model.device).",
            stacklevel=2,
        )
    return x_TI.to(weight.device, weight.dtype)


def _flatten(values_RTX: Tensor) -> Tensor:
    # Not reshape(-1, ...): the dense output of a transcoder without a skip connection has no entries.
    return values_RTX.reshape(values_RTX.shape[:-1].numel(), values_RTX.shape[-1])
