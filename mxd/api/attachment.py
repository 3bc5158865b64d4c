"""Computing a layer inside a Hugging Face model, and taking it out again.

The model keeps its modules, parameters and hooks: only the ``forward`` of one MLP is replaced, until the handle is
detached.

Shapes: B rows, T tokens, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor

from mxd.trainer.config import Edit, SteeringMode
from mxd.trainer.errors import UserError
from mxd.trainer.inference.edits import EditPlan, edit_routing
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.mlp_hooks import Mlp, replace_mlp
from mxd.trainer.layers.base import SparseLayer

if TYPE_CHECKING:
    from mxd.api.layer import Layer

Change = float | Literal["ablate"] | tuple[Literal["add", "scale", "set"], float]
"""Change of a gate activation. A number is added, in units of the expert's 99th-percentile activation. ``"ablate"``
sets it to 0. ``("scale", 0.5)`` multiplies it, and ``("set", 3)`` replaces it, in the same units as a number."""

Edits = Mapping[int, Change]
"""Expert -> change of its gate activation."""

SUBMODULE = "mxd"
"""Name under which an attached layer is a submodule of its block."""


def parse_edits(edits: Edits) -> tuple[Edit, ...]:
    """Return the edits as settings.

    Raises:
        UserError: a change has an unknown form.
    """
    return tuple(_parse_edit(expert, change) for expert, change in edits.items())


def _parse_edit(expert: int, change: Change) -> Edit:
    try:
        if change == "ablate":
            return Edit(expert=expert, mode="ablate")
        mode, strength = change if isinstance(change, tuple) else ("add", change)
        return Edit(expert=expert, mode=mode, strength=float(strength))
    except (TypeError, ValueError) as error:
        raise UserError(
            f'Invalid change of expert {expert}: {change!r}. Use a number such as +6, "ablate", ("scale", 0.5) or '
            '("set", 3).'
        ) from error


class LayerFunction:
    """Output of an MLP computed with a layer: the layer's, or the MLP's own plus the difference that edits make."""

    def __init__(self, core: SparseLayer, mode: SteeringMode, plan: EditPlan) -> None:
        self.core = core
        self.mode = mode
        self.plan = plan

    def __call__(self, x_BTI: Tensor, mlp: Mlp) -> Tensor:
        """Output [B, T, O], of the dtype and on the device of the MLP's input."""
        original = mlp() if self.mode == "residual" or self.core.reads == "mlp-output" else None
        inputs = original if self.core.reads == "mlp-output" else x_BTI
        assert inputs is not None
        x_PI = like_weights(inputs.reshape(-1, inputs.shape[-1]), self.core)
        routing, dense_PM = self.core.route(x_PI), self.core.dense_output(x_PI)
        change_PO: Tensor | None = None
        if self.plan.edits:
            plan_of_P = torch.zeros(len(x_PI), dtype=torch.int64, device=x_PI.device)
            change_PO = self.core.contribution(dense_PM, edit_routing([self.plan], plan_of_P, routing))
        if self.mode == "replace":
            replaced_PO = self.core.decode(dense_PM, routing)
            output_PO = replaced_PO if change_PO is None else replaced_PO + change_PO
            return output_PO.to(x_BTI).reshape(*x_BTI.shape[:-1], -1)
        assert original is not None
        return original if change_PO is None else original + change_PO.to(original).reshape(original.shape)


def like_weights(x_TI: Tensor, core: SparseLayer) -> Tensor:
    """Return activations on the device and with the dtype of a layer's weights."""
    weight = next(core.parameters())
    return x_TI.to(weight.device, weight.dtype)


class Attachment:
    """Handle of a layer that computes inside a model. ``detach`` takes it out; so does leaving a ``with`` block."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def detach(self) -> None:
        """Restore the model exactly. A second call does nothing."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


def splice(layer: Layer, model: Any, edits: Edits, mode: SteeringMode) -> Attachment:
    """Compute a layer inside ``model`` until the returned handle is detached.

    Raises:
        UserError: the layer does not fit the model, or an edit is invalid.
    """
    stack = ExitStack()
    _splice(layer, model, edits, mode, stack)
    return Attachment(stack)


def attach(layer: Layer, model: Any, edits: Edits, mode: SteeringMode) -> Attachment:
    """As ``splice``, and make the layer a submodule of its block, so that it moves and trains with the model.

    Raises:
        UserError: as ``splice``, or another layer is attached there.
    """
    block = architecture_of(layer, model).block(layer.layer)
    if SUBMODULE in dict(block.named_children()):
        raise UserError(f"Layer {layer.layer} of the model already has an attached layer. Detach that one first.")
    stack = ExitStack()
    _splice(layer, model, edits, mode, stack)
    block.add_module(SUBMODULE, layer)
    stack.callback(delattr, block, SUBMODULE)
    return Attachment(stack)


def _splice(layer: Layer, model: Any, edits: Edits, mode: SteeringMode, stack: ExitStack) -> None:
    plan = EditPlan.from_edits(parse_edits(edits), layer.run.units, layer.config.num_experts)
    architecture = architecture_of(layer, model)
    function = LayerFunction(layer.core, mode, plan)
    replace_mlp(architecture.block(layer.layer), architecture.mlp_names(layer.layer), function, stack)


def architecture_of(layer: Layer, model: Any) -> Architecture:
    """Return the blocks of ``model``, checked against the widths of ``layer``.

    Raises:
        UserError: the architecture is not supported, or the widths differ.
    """
    architecture = Architecture(model, getattr(model, "name_or_path", "") or type(model).__name__)
    shape, config = architecture.mlp_shape(layer.layer), layer.config
    expected = shape.output_width if layer.core.reads == "mlp-output" else shape.input_width
    if (expected, shape.output_width) != (config.input_width, config.output_width):
        raise UserError(
            f"'{layer.name}' has widths {config.input_width} -> {config.output_width}, but the MLP of layer "
            f"{layer.layer} of this model has {expected} -> {shape.output_width}. Use the model that it was trained "
            f"on: {layer.run.config.language_model}."
        )
    return architecture
