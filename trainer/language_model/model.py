"""A Hugging Face causal language model: capture the inputs and outputs of its MLPs, and replace them.

Inputs and outputs are the module's own: no norm is folded and nothing is centred.

Shapes: B rows, T tokens, I input width, O output width, W width of the residual stream, R residual vectors,
V vocabulary size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from mxd.trainer.config.training import DtypeChoice
from mxd.trainer.errors import TESTED_VERSIONS, UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.kv_cache import GrowableCache, shared_prefix, variant_tokens
from mxd.trainer.language_model.loading import (
    DeviceMap,
    Sharding,
    choose_device,
    choose_dtype,
    execution_device,
    head_in_float32,
    load_module,
    load_outline,
)
from mxd.trainer.language_model.mlp_hooks import (
    EditedMlp,
    LinearKernels,
    Mlp,
    MlpFunction,
    StopForward,
    agrees,
    probed,
    replace_forward,
    replace_mlp,
)
from mxd.trainer.language_model.related_words import RelatedWords
from mxd.trainer.language_model.residuals import Additions, residual_at
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.utils.distributed import AUTO_MAP

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


CACHE_ARGUMENTS = ("cache", "past_key_values")


class MlpActivations(NamedTuple):
    """Input and output of an MLP, one row per token."""

    input_TI: Tensor
    output_TO: Tensor

    def inputs_for(self, sparse_layer: SparseLayer) -> Tensor:
        return self.output_TO if sparse_layer.reads == "mlp-output" else self.input_TI

    def rows(self, indices_R: Tensor) -> MlpActivations:
        indices_R = indices_R.to(self.input_TI.device)  # the layers of a dispatched model may be on other devices
        return MlpActivations(self.input_TI[indices_R], self.output_TO[indices_R])


class LanguageModel:
    """A causal language model with its tokenizer, on one device, dispatched over several or sharded over processes."""

    def __init__(
        self, module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str, sharding: Sharding | None = None
    ) -> None:
        self.module = module.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.source = source
        self.sharding = sharding
        self.architecture = Architecture(module, source)
        self.linear_kernels = LinearKernels(self.module)
        self.additions = Additions(self)
        self.single_texts: dict[int, str] = {}
        """Cache of token id -> its text inside a text."""
        self.related_words = RelatedWords(self)
        self.unit_prices: WeakKeyDictionary[SparseLayer, dict[tuple[str, ...], Tensor]] = WeakKeyDictionary()
        """Cache of sparse layer -> texts -> predicted price of each expert at a gate activation of 1, [N]."""

    @classmethod
    @torch.inference_mode(mode=False)  # weights created in inference mode can be in no backward pass
    def load(
        cls,
        source: str,
        device: str = "auto",
        dtype: torch.dtype | DtypeChoice = "auto",
        *,
        last_layer: int | None = None,
        sharding: Sharding | None = None,
    ) -> LanguageModel:
        """Load a language model from the Hub, a folder or a GGUF file. Remote code and pickled weights are rejected.

        Args:
            source: Hub name (``openai-community/gpt2``), folder, or path of a GGUF file.
            device: ``auto`` uses the accelerator if there is one. ``auto-map`` fills all GPUs evenly; what they cannot
                hold stays in main memory or on disk.
            dtype: ``auto`` is bfloat16 on accelerators that have it natively, and float32 elsewhere.
            last_layer: blocks behind this one are not loaded, where the architecture permits. Then there are
                activations, but no predictions.
            sharding: spread the weights over the processes of torchrun. All of them must call every forward pass.

        Raises:
            UserError: the model does not exist, cannot be downloaded, is damaged, or is not a causal language model.
        """
        chosen = choose_device(device)
        dtype = _dtype(dtype, chosen)
        if sharding is not None:
            if chosen.type != choose_device("auto").type or chosen.type == "mps":
                raise UserError(f"A model cannot be sharded over {chosen.type} devices here. Omit --shard-model.")
            module = load_module(source, dtype, last_layer, sharding=sharding)
            return cls(module, load_tokenizer(source), source, sharding)
        if device == AUTO_MAP:
            return cls.dispatched(source, "auto", dtype, last_layer)
        return cls(load_module(source, dtype, last_layer).to(chosen), load_tokenizer(source), source)  # type: ignore[arg-type]

    @classmethod
    @torch.inference_mode(mode=False)
    def dispatched(
        cls, source: str, device_map: DeviceMap, dtype: torch.dtype, last_layer: int | None = None
    ) -> LanguageModel:
        """Load a language model with each module on the device that ``device_map`` names; devices work in turn. Errors
        as ``load``."""
        return cls(load_module(source, dtype, last_layer, device_map), load_tokenizer(source), source)

    @property
    def num_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.module.parameters())

    @property
    def config(self) -> Any:
        return self.module.config.get_text_config()

    @property
    def max_tokens(self) -> int:
        return self.architecture.max_tokens

    def check_ids(self, largest: int) -> None:
        """Check that the input embedding has all tokens up to the id ``largest``. Raises UserError if it has fewer."""
        rows = self.architecture.vocabulary_size
        if largest >= rows:
            name = self.tokenizer.convert_ids_to_tokens(largest)
            named = f" ('{name}')" if name else ""
            raise UserError(
                f"{self.source} has no token {largest}{named}: its input embedding has {rows:,} rows. Use texts "
                "that were tokenised for this language model, without tokens that only its tokenizer has."
            )

    def on_device(self, ids_BT: Tensor) -> Tensor:
        """Token ids on the device of the language model. Raises UserError if the input embedding has no such token or
        position. Ids on a GPU are not checked, because that would stall it."""
        self.architecture.check_context_length(ids_BT.shape[-1])
        if ids_BT.device.type == "cpu" and ids_BT.numel():
            self.check_ids(int(ids_BT.max()))
        return ids_BT.to(self.device)

    @property
    def device(self) -> torch.device:
        return execution_device(self.module.get_input_embeddings()) or self.module.device

    def device_of(self, layer: int) -> torch.device:
        """Device on which a layer's MLP computes; a sparse layer that replaces it must be there too."""
        return execution_device(self.architecture.block(layer)) or self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype  # type: ignore[no-any-return]

    @torch.no_grad()
    def logits(self, input_ids_BT: Tensor) -> Tensor:
        """Next-token logits [B, T, V] in float32; the final norm and the unembedding are computed in it."""
        if self.dtype != torch.float32:
            residual_BTW = self.residual(input_ids_BT)
            logits_PV = self.unembed(residual_BTW.flatten(0, 1))
            return logits_PV.view(*residual_BTW.shape[:2], -1)
        with ExitStack() as stack:
            self.linear_kernels.apply(stack)
            logits_BTV: Tensor = self.module(input_ids=self.on_device(input_ids_BT), use_cache=False).logits
        return logits_BTV.float()

    @torch.no_grad()
    def next_logits(self, ids_BT: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache | None]:
        """Logits [B, V] in float32 of the token after the last, and the cache of all tokens so far. ``ids_BT`` are all
        tokens so far. ``cache`` has all but the newest, and is None at the start of a text. An architecture that cannot
        continue from a cache returns None, and computes all tokens again."""
        if not self.can_continue_cache:
            return self.logits_at(ids_BT, [ids_BT.shape[1] - 1] * len(ids_BT)), None
        return self._continued(ids_BT if cache is None else ids_BT[:, -1:], cache)

    def _continued(self, new_BT: Tensor, cache: Cache | None) -> tuple[Tensor, Cache]:
        given = {} if cache is None else {cache_argument(self.module): cache}
        output = self.module(input_ids=self.on_device(new_BT), use_cache=True, **given)
        returned = next((value for value in output.values() if isinstance(value, Cache)), None)
        if returned is None:
            raise UserError(f"{type(self.module).__name__} returned no key-value cache. {TESTED_VERSIONS}")
        return output.logits[:, -1].float(), returned

    @property
    @probed
    def can_continue_cache(self) -> bool:
        """True if the cache that a forward pass returns continues a text. Tested with two rows of a few tokens."""
        ids_2T = torch.tensor([[1, 2, 3], [3, 1, 2]])
        _, cache = self._continued(ids_2T[:, :-1], None)
        actual_2V, _ = self._continued(ids_2T[:, -1:], cache)
        return agrees(actual_2V, self.logits(ids_2T)[:, -1], self.dtype)

    def next_padded_logits(self, ids_BT: Tensor, cached: Sequence[int], cache: Cache) -> Tensor:
        """Logits [B, V] in float32 of the token after the last, of rows that are padded on the left in a cache.
        ``ids_BT`` are the newest tokens of each row, which are added to ``cache``. That has ``cached`` tokens of
        each."""
        length, new = cache.get_seq_length(), ids_BT.shape[1]
        cached_B1, mask_BT = torch.tensor(cached, device=self.device).unsqueeze(1), None
        if any(tokens != length for tokens in cached):  # without a mask, attention is faster
            mask_BT = (torch.arange(length + new, device=self.device) >= length - cached_B1).long()
        output = self.module(
            input_ids=self.on_device(ids_BT),
            attention_mask=mask_BT,
            position_ids=cached_B1 + torch.arange(new, device=self.device),
            use_cache=True,
            logits_to_keep=1,
            **{cache_argument(self.module): cache},
        )
        logits_BV: Tensor = output.logits[:, -1].float()
        return logits_BV

    def logits_at(self, ids_BT: Tensor, positions: Sequence[int]) -> Tensor:
        """Logits [B, V] in float32 of the token after one position in each row, without a cache."""
        wanted = sorted(set(positions))
        keep = {}
        if "logits_to_keep" in inspect.signature(type(self.module).forward).parameters:
            keep = {"logits_to_keep": torch.tensor(wanted, device=self.device)}
        logits_BTV = self.module(input_ids=self.on_device(ids_BT), use_cache=False, **keep).logits
        columns = [wanted.index(position) if keep else position for position in positions]
        logits_BV: Tensor = logits_BTV[torch.arange(len(columns)), columns].float()
        return logits_BV

    @property
    @probed
    def can_grow_cache(self) -> bool:
        """True if a cache may have one pair of keys and values per block, with rows that are padded on the left. Tested
        with a few tokens against forward passes without a cache."""
        rows, caches = [[1, 2, 3, 2], [3, 1, 2]], [GrowableCache(), GrowableCache()]
        for ids, cache in zip(rows, caches, strict=True):
            self.next_padded_logits(torch.tensor([ids[:-1]]), [0], cache)
        cache, appended = caches
        cache.append_rows(appended)
        newest = torch.tensor([ids[-1:] for ids in rows])
        logits_2V = self.next_padded_logits(newest, [len(ids) - 1 for ids in rows], cache)
        expected_2V = torch.stack([self.logits(torch.tensor([ids]))[0, -1] for ids in rows])
        return cache.num_pairs == len(self.architecture.blocks) and agrees(logits_2V, expected_2V, self.dtype)

    def capture(self, layer: int, input_ids_BT: Tensor) -> MlpActivations:
        """Input and output of a layer's MLP on B x T tokens. Later layers are not computed."""
        return self.capture_layers([layer], input_ids_BT)[layer]

    @torch.no_grad()
    def capture_layers(self, layers: Sequence[int], input_ids_BT: Tensor) -> dict[int, MlpActivations]:
        """Inputs and outputs of several layers' MLPs in one forward pass, which ends after the last of them."""
        captured: dict[int, MlpActivations] = {}

        def watch(layer: int, x: Tensor, mlp: Mlp) -> Tensor:
            output = mlp()
            captured[layer] = MlpActivations(*(value.reshape(-1, value.shape[-1]) for value in (x, output)))
            # Behind the last block, FSDP would miss the end of its root.
            if layer == max(layers) and (self.sharding != "fsdp" or layer + 1 < len(self.architecture.blocks)):
                raise StopForward
            return output

        self._watch(watch, layers, input_ids_BT)
        return captured

    @torch.inference_mode()
    def mlp_inputs(self, layers: Sequence[int], input_ids_BT: Tensor) -> dict[int, Tensor]:
        """Input [B x T, I] of each layer's MLP; the last layer's MLP is not computed."""
        inputs: dict[int, Tensor] = {}

        def watch(layer: int, x: Tensor, mlp: Mlp) -> Tensor:
            inputs[layer] = x.reshape(-1, x.shape[-1])
            if layer == max(layers):
                raise StopForward
            return mlp()

        self._watch(watch, layers, input_ids_BT)
        return inputs

    def _watch(self, watch: Callable[[int, Tensor, Mlp], Tensor], layers: Sequence[int], ids_BT: Tensor) -> None:
        """Run a forward pass with ``watch`` of the layer, its input and its MLP in place of some MLPs."""

        def checked(layer: int, x: Tensor, mlp: Mlp) -> Tensor:
            if x.shape[:-1] not in (ids_BT.shape, (ids_BT.numel(),)):
                raise UserError(
                    f"The MLP of layer {layer} of {self.source} cannot be replaced: its input has the shape "
                    f"{list(x.shape)} for {list(ids_BT.shape)} tokens. Supported are MLPs with one input per token."
                )
            return watch(layer, x, mlp)

        with ExitStack() as stack:
            self.linear_kernels.apply(stack)
            stack.enter_context(self.replace_mlps({layer: partial(checked, layer) for layer in layers}))
            stack.enter_context(suppress(StopForward))
            self.module.base_model(input_ids=self.on_device(ids_BT), use_cache=False)

    @probed
    def can_split_row(self, layer: int) -> bool:
        """True if one row can become two at a layer's MLP by broadcasting, as in most architectures."""
        ids_1T = torch.tensor([[1, 2, 3]], device=self.device)
        expected_TV = self.logits(ids_1T)[0]
        with self.replace_mlps({layer: lambda _x, mlp: mlp().repeat(2, 1, 1)}):
            return agrees(self.logits(ids_1T), expected_TV.expand(2, -1, -1), self.dtype)

    @probed
    def can_share_prefix(self, layer: int) -> bool:
        """True if one text can become several rows at a block (see ``shared_prefix``), as in most architectures. Tested
        with padding, against separate rows."""
        text_of_B, ids_2T = [0, 1, 0], torch.tensor([[1, 1, 2, 3], [3, 2, 1, 2]], device=self.device)
        mask_2T = torch.tensor([[0, 1, 1, 1], [1, 1, 1, 1]], device=self.device)
        expected_3V = self._last_logits(ids_2T[text_of_B], mask_2T[text_of_B])
        with shared_prefix(self.architecture.blocks, layer, text_of_B):
            return agrees(self._last_logits(ids_2T, mask_2T), expected_3V, self.dtype)

    def _last_logits(self, input_ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        output = self.module(input_ids=input_ids_BT, attention_mask=mask_BT, use_cache=False)
        logits_BV: Tensor = output.logits[:, -1].float()
        return logits_BV

    @probed
    def can_append_variants(self, layer: int) -> bool:
        """True if tokens can have variants from a block on (see ``variant_tokens``), as in most architectures. Tested
        with changed MLP outputs, against one text per variant."""
        ids_1T, position_R = torch.tensor([[1, 2, 3, 2, 1]], device=self.device), torch.tensor([1, 3, 3])
        row_R, factor_R = torch.arange(3), torch.tensor([-1.0, 0.5, 2.0])

        def changed(place: Any, _x: Tensor, mlp: Mlp) -> Tensor:
            output = mlp().clone()
            output[place] *= factor_R.to(output).unsqueeze(1)
            return output

        with self.replace_mlps({layer: partial(changed, (row_R, position_R))}):
            expected_RW = self.residual(ids_1T.expand(3, -1))[row_R, position_R]
        added = {layer: partial(changed, (slice(None), slice(-3, None)))}
        with variant_tokens(self.architecture.blocks, layer, position_R) as variants, self.replace_mlps(added):
            self.residual(ids_1T)
        return agrees(variants[0], expected_RW, self.dtype)

    def residual(self, input_ids_BT: Tensor) -> Tensor:
        """Residual stream [B, T, W] after the last block, the input of the final norm; differentiable."""
        return residual_at(self, len(self.architecture.blocks), input_ids_BT)

    @cached_property
    @torch.no_grad()
    def _further_outputs(self) -> tuple[Any, ...] | None:
        """Values that a block of this architecture returns after its hidden states; None if it returns no tuple."""
        outputs: list[Any] = []
        handle = self.architecture.blocks[-1].register_forward_hook(lambda *call: outputs.append(call[-1]))
        try:
            self.module.base_model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=self.device), use_cache=False)
        finally:
            handle.remove()
        hidden = outputs[0][0] if isinstance(outputs[0], tuple | list) else outputs[0]
        if hidden.shape[:-1] != (1, 1):
            raise UserError(
                f"{self.source} has {len(hidden)} residual streams. Predictions from one residual stream, which "
                "effects and circuits need, are not supported for it."
            )
        return tuple(outputs[0][1:]) if isinstance(outputs[0], tuple | list) else None

    def unembed(self, residual_RW: Tensor) -> Tensor:
        """Logits [R, V] of residual vectors after the last block, of any dtype, on any device; differentiable.

        Computed in float32 with float32 copies of the weights behind the blocks: a bfloat16 logit near 16 has steps of
        0.06, which is more than most experts change it. Round the vectors nowhere before. Runs a forward pass of one
        token per row whose blocks return the vectors. This works in every architecture, wherever it keeps its final
        norm and unembedding.
        """
        blocks = self.architecture.blocks
        hidden_R1W = residual_RW.to(self.device_of(len(blocks) - 1), torch.float32).unsqueeze(1)
        output = hidden_R1W if self._further_outputs is None else (hidden_R1W, *self._further_outputs)
        ids_R1 = torch.zeros(len(residual_RW), 1, dtype=torch.int64, device=self.device)
        with ExitStack() as stack:
            for block in blocks:
                replace_forward(block, lambda *_args, **_kwargs: output, stack)
            head = stack.enter_context(head_in_float32(self.module, blocks))
            inputs = {"input_ids": ids_R1, "use_cache": False}
            logits_RV: Tensor = torch.func.functional_call(self.module, head, kwargs=inputs).logits[:, 0]
        return logits_RV.float()

    @contextmanager
    def replace_mlps(self, functions: Mapping[int, MlpFunction]) -> Iterator[None]:
        """Replace the MLPs of some layers by functions inside the context; the originals are always restored."""
        with ExitStack() as stack:
            for layer, function in functions.items():
                replace_mlp(self.architecture.block(layer), self.architecture.mlp_names(layer), function, stack)
            yield

    @contextmanager
    def replace(self, layers: Mapping[int, SparseLayer]) -> Iterator[None]:
        with self.replace_mlps({index: EditedMlp(layer, mode="replace") for index, layer in layers.items()}):
            yield

    def down_projection(self, layer: int) -> nn.Module:
        """Linear module of a layer's MLP that maps its neurons to its output."""
        return self.architecture.matrices(layer)[1]


def _dtype(dtype: torch.dtype | DtypeChoice, device: torch.device) -> torch.dtype:
    if not isinstance(dtype, str):
        return dtype
    named: torch.dtype = choose_dtype(device) if dtype == "auto" else getattr(torch, dtype)
    return named


def needed_bytes(source: str, device: str = "auto", dtype: torch.dtype | DtypeChoice = "auto") -> int:
    """Size of the weights of a language model that ``LanguageModel.load`` would load; from its config alone. Raises
    UserError if the config cannot be read."""
    size = _dtype(dtype, choose_device(device)).itemsize
    return sum(size * weight.numel() for weight in load_outline(source).parameters())


def cache_argument(module: nn.Module) -> str:
    """Name of the argument of a model's forward pass that takes a key-value cache; transformers 5.24 renamed it. Raises
    UserError if there is none."""
    known = inspect.signature(type(module).forward).parameters
    name = next((name for name in CACHE_ARGUMENTS if name in known), None)
    if name is None:
        raise UserError(
            f"The forward pass of {type(module).__name__} takes no key-value cache: none of its arguments is called "
            f"{' or '.join(CACHE_ARGUMENTS)}. {TESTED_VERSIONS}"
        )
    return name
