"""Language models of the caller: loaded by name, or borrowed and left as they were; and edits in the caller's own loop.

Shapes: B rows, T tokens of a forward pass, I input width, O output width, P tokens that are computed, K active experts.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, cast
from weakref import WeakSet

import torch
from pydantic import ValidationError
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache

from mxd.trainer.config.steering import CLAUSES, EDIT_FORMATS, Edit
from mxd.trainer.config.training import DtypeChoice
from mxd.trainer.errors import UserError
from mxd.trainer.inference.edits import EditPlan, TextProgress, edit_routing
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.mlp_hooks import LayerPass, Mlp, replace_mlp
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import TokenStream
from mxd.trainer.storage.run import Run

MODEL_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids")
"""Entries of a batch that are passed to the model."""


def load_model(
    source: str, *, device: str = "auto", dtype: torch.dtype | DtypeChoice = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a plain transformers model and its tokenizer, also from a GGUF file. Pickled weights are rejected.

    >>> model, tokenizer = mxd.load_model(model_folder)
    >>> type(model).__name__
    'LlamaForCausalLM'

    Args:
        source: Hub name, folder, path of a GGUF file, or ``package:NAME`` for the GGUF file of an installed package.
        device: ``auto``, ``cpu``, ``cuda``, ``xpu``, ``mps``, one of several such as ``cuda:1``, or ``auto-map``.
        dtype: ``auto`` is bfloat16 on accelerators that have it natively, and float32 elsewhere.

    Raises:
        UserError: the model does not exist, is damaged, or is not a causal language model.
    """
    language_model = LanguageModel.load(source, device, dtype)
    model = language_model.module.requires_grad_(True)
    model.name_or_path = source  # from which commands and the dashboard load it again
    return model, language_model.tokenizer


class Reference:
    """The model that a layer was trained on in this process, or that was loaded for it. Copies do not include it."""

    def __init__(self) -> None:
        self.model: tuple[Any, Any] | None = None
        """Model and tokenizer of the caller."""
        self.loaded: LanguageModel | None = None

    def __reduce__(self) -> tuple[type[Reference], tuple[()]]:
        return Reference, ()


@contextmanager
def unchanged(*modules: nn.Module) -> Iterator[None]:
    """Restore the training mode of all submodules and ``requires_grad`` of all parameters on exit."""
    training = [(child, child.training) for module in modules for child in module.modules()]
    gradients = [(it, it.requires_grad) for module in modules for it in module.parameters()]
    try:
        yield
    finally:
        for child, mode in training:
            child.training = mode
        for parameter, requires_grad in gradients:
            parameter.requires_grad_(requires_grad)


@contextmanager
def borrowed(model: Any, tokenizer: Any, source: str) -> Iterator[LanguageModel]:
    """Use the caller's model in evaluation mode and without gradients; restore both settings exactly on exit."""
    with unchanged(model):
        yield LanguageModel(model, tokenizer, source)


def model_inputs(model: Any, batch: Mapping[str, Tensor] | Tensor) -> dict[str, Tensor]:
    """Arguments of the model's forward pass, on its device. Left-padded rows get the positions of unpadded ones."""
    given = dict(batch) if isinstance(batch, Mapping) else {"input_ids": batch}
    inputs = {name: given[name].to(model.device) for name in MODEL_INPUTS if isinstance(given.get(name), Tensor)}
    if not {"input_ids", "inputs_embeds"} & inputs.keys():
        raise UserError(
            "The batch has no tensor of token ids. Pass texts, the result of layer.tokenize(texts) or of "
            'tokenizer(texts, return_tensors="pt", padding=True), or a tensor of ids [B, T].'
        )
    mask_BT = inputs.get("attention_mask")
    is_padded_left = mask_BT is not None and not bool(mask_BT[:, 0].all())
    # In forward, transformers counts padding on the left as positions; in generate it does not.
    if mask_BT is not None and is_padded_left and "position_ids" in inspect.signature(model.forward).parameters:
        inputs.setdefault("position_ids", (mask_BT.long().cumsum(dim=1) - 1).clamp_min(0))
    return inputs


class Attachment(ExitStack):
    """Handle of a layer that computes inside a model. ``detach`` takes it out; so does leaving a ``with`` block."""

    def detach(self) -> None:
        """Restore the model exactly. A second call does nothing."""
        self.close()


class GuardedSave:
    """``save_pretrained`` of a model, or of one that holds the same blocks, while layers are attached to it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.attached = 0

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise UserError(
            "A layer is attached to the model, and transformers would load the original MLP again. Save the layer with "
            "layer.save_pretrained(folder), detach it, and save the model then. To use both: "
            "mxd.load(folder).attach(model)."
        )

    def release(self) -> None:
        """Restore the model's own method after the last layer is detached."""
        self.attached -= 1
        if not self.attached:
            del vars(self.model)["save_pretrained"]


class _Captured(Exception):
    """Ends the forward pass after the layer's MLP."""

    def __init__(self, activations: Tensor) -> None:
        self.activations = activations


def mlp_activations(
    model: Any, architecture: Architecture, index: int, reads: str, inputs: Mapping[str, Tensor]
) -> Tensor:
    """Input [B, T, I] of the MLP of a block, or its output for an autoencoder. Later blocks are not computed."""

    def capture(x_BTI: Tensor, mlp: Mlp) -> Tensor:
        raise _Captured(mlp() if reads == "mlp-output" else x_BTI)

    with ExitStack() as stack:
        replace_mlp(architecture.block(index), architecture.mlp_names(index), capture, stack)
        try:
            model(**inputs, use_cache=False)
        except _Captured as captured:
            return captured.activations
    raise AssertionError("The model did not compute the layer's MLP.")


# ---------------------------------------------------------------- edits

Change = float | Literal["ablate"] | tuple[Literal["add", "scale", "set"], float]
"""Change of a gate activation. A number is added, in units of the expert's 99th-percentile activation. ``"ablate"``
sets it to 0. ``("scale", 0.5)`` multiplies it, and ``("set", 3)`` replaces it, in the same units as a number."""

Edits = Mapping[int, Change] | Sequence[Edit | str]
"""Expert -> change of its gate activation; or edits as the command line writes them, such as ``"7:add:6@when:40>0"``,
which can have conditions."""


def parse_edits(edits: Edits) -> tuple[Edit, ...]:
    """Return the edits as settings. Raises UserError if a change has an unknown form."""
    if isinstance(edits, Mapping):
        return tuple(_parse_change(expert, change) for expert, change in edits.items())
    parsed = []
    for edit in [edits] if isinstance(edits, str) else edits:
        try:
            parsed.append(Edit.model_validate(edit))
        except ValidationError as error:
            raise UserError(
                f"Invalid edit: '{edit}'. Write {EDIT_FORMATS}, then conditions such as {CLAUSES}."
            ) from error
    return tuple(parsed)


def _parse_change(expert: int, change: Change) -> Edit:
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


class GrowingText:
    """Position of each token of a forward pass in the texts that a user's loop writes.

    A pass over several tokens is a prompt or extends it. A token that is passed alone, after a prompt, is generated; so
    is the last token of a pass that repeats the previous text and adds one, as in a loop without a cache. In beam
    search, a row continues the text of any row of the pass before.
    """

    def __init__(self, run: Run, plan: EditPlan) -> None:
        self._run, self._plan = run, plan
        self._texts = frozenset(edit.when.until for edit in plan.edits if edit.when and edit.when.until)
        self._ids_BT = torch.zeros(0, 0, dtype=torch.long)
        self._prompt = self._start = self._length = 0
        self._rows: list[TextProgress] = []
        self._streams: list[TokenStream] = []
        self._generated: list[str] = []
        self._followed: WeakSet[Cache] = WeakSet()

    def before_forward(self, _model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Record what a forward pass of the model reads."""
        ids_BT, embeddings_BTW = kwargs.get("input_ids", args[0] if args else None), kwargs.get("inputs_embeds")
        if ids_BT is None:
            if embeddings_BTW is None:
                raise UserError("Conditions that depend on the position need input_ids or inputs_embeds in every pass.")
            ids_BT = embeddings_BTW.new_full(embeddings_BTW.shape[:2], -1, dtype=torch.long)
        # By its class, because transformers 5.24 renamed the argument.
        cache = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
        past = int(cache.get_seq_length()) if cache is not None else 0
        if cache is not None and cache not in self._followed:
            self._follow(cache)
        mask = kwargs.get("attention_mask")
        if isinstance(mask, Tensor) and mask.dim() == 2 and mask.shape[1] > past + ids_BT.shape[1]:
            raise UserError(
                "Conditions that depend on the position need the length of the text so far, but the attention mask "
                f"has {mask.shape[1]} tokens, the cache {past} and the input {ids_BT.shape[1]}. Pass the cache as a "
                "transformers Cache, or call the model with use_cache=False and the whole text."
            )
        if cache is not None:
            is_generated = ids_BT.shape[1] == 1 and past > 0
        elif is_generated := (parents := self._parents(ids_BT)) is not None:
            self._reorder(parents)
        self._start, self._length = past, past + ids_BT.shape[1]
        self._ids_BT = ids_BT
        if not (is_generated and self._rows):
            self._begin(ids_BT)
        elif self._texts:
            for row, (token, stream) in enumerate(zip(ids_BT[:, -1].tolist(), self._streams, strict=True)):
                self._generated[row] += stream.push(token)
                self._rows[row].note(self._generated[row], self._length - 1)

    @cached_property
    def _tokenizer(self) -> Any:
        return self._run.tokenizer

    def _follow(self, cache: Cache) -> None:
        """Reorder the rows whenever beam search reorders those of the cache."""
        reorder_cache = cache.reorder_cache

        def reorder_both(beam_idx: Tensor) -> None:
            reorder_cache(cast("torch.LongTensor", beam_idx))
            if self._rows:
                self._reorder(beam_idx.tolist())

        vars(cache)["reorder_cache"] = reorder_both
        self._followed.add(cache)

    def _parents(self, ids_BT: Tensor) -> list[int] | None:
        """The row of the previous pass that each row continues by one token; None if one continues none of them."""
        if ids_BT.shape[1] != self._ids_BT.shape[1] + 1 or not self._rows:
            return None
        known = self._ids_BT.tolist()
        parents = []
        for row, (*text, _) in enumerate(ids_BT.tolist()):
            if row < len(known) and known[row] == text:
                parents.append(row)
            elif text in known:
                parents.append(known.index(text))
            else:
                return None
        return parents

    def _reorder(self, parents: Sequence[int]) -> None:
        if list(parents) != list(range(len(self._rows))):
            self._rows = [replace(self._rows[row], ended=dict(self._rows[row].ended)) for row in parents]
            self._streams = [self._streams[row].copy() for row in parents] if self._streams else []
            self._generated = [self._generated[row] for row in parents]

    def _begin(self, ids_BT: Tensor) -> None:
        rows = ids_BT.tolist()
        self._rows = [TextProgress(self._length, self._texts) for _ in rows]
        self._generated = [""] * len(rows)
        if self._texts:
            before = [[token for token in row[-4:] if token >= 0] for row in rows]
            self._streams = [TokenStream(self._tokenizer, ids) for ids in before]

    def plans(self, tokens: int) -> tuple[list[EditPlan], Tensor]:
        """The distinct plans of the current pass, and the index of each token's plan, [B * T]; their number for none.
        Raises UserError if the pass did not begin with a call of the model."""
        if tokens != len(self._rows) * (self._length - self._start):
            raise UserError("Conditions that depend on the position need calls of the model that was passed to steer.")
        positions = range(self._start, self._length)
        plans_P = [self._plan.at(progress, position) for progress in self._rows for position in positions]
        distinct = list({id(plan): plan for plan in plans_P if plan}.values())
        index = {id(plan): number for number, plan in enumerate(distinct)}
        return distinct, torch.tensor([index.get(id(plan), len(distinct)) for plan in plans_P])


@dataclass(eq=False)
class AddedOutput:
    """Addition of edits to the output of an MLP in a user's own loop."""

    plan: EditPlan
    text: GrowingText | None
    """Tells the positions of the tokens, if the plan depends on them."""

    def __call__(self, layer_pass: LayerPass) -> Tensor | None:
        """The added vectors, [P, O]; None without edits."""
        tokens = layer_pass.x_STI.shape[:-1].numel()
        if self.text is None:
            plans, plan_of_P = [self.plan] if self.plan.edits else [], torch.zeros(tokens, dtype=torch.int64)
        else:
            plans, plan_of_P = self.text.plans(tokens)
        if not plans:
            return None
        routing = layer_pass.routing
        return layer_pass.contribution(edit_routing(plans, plan_of_P.to(routing.indices_TK.device), routing))
