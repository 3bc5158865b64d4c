"""A tiny random model of every causal language model of transformers, and checks of what this program does with it.

Each check compares one function with plain transformers and forward hooks.

Shapes: S sequences, L tokens, T = S * L, I input width, O output width, W width of the residual stream.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import mxd
from mxd.backend.database.engine import opened
from mxd.trainer.analysis.circuits.tracing import trace
from mxd.trainer.analysis.expert import _sequences_of, mean_outputs
from mxd.trainer.config.analysis import CircuitConfig, EvaluateConfig
from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig
from mxd.trainer.data.sequences import sequence_batches
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from tests.helpers.runs import World, byte_tokenizer, small_world

CELLS = ("capture", "evaluate", "steer", "circuit", "vectors", "attach")
TOLERANCE = 1e-4
"""Largest relative difference of an exact cell. Float32 resolves 1.2e-7, and a forward pass adds many roundings."""
BLOCKS, PROMPT = 4, "the old fox sat and sang"
_SIZES: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_inner", "dff"), 64),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "block_ff_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), BLOCKS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_decoder_layers"), 4),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_target_positions"), 64),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 48),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "head_dim", "global_head_dim"), 8),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace"), 1),
    **{"vocab_size": 257, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "decoder_start_token_id": 0},
    **{"sliding_window": 8, "encoder_layers": 1, "vocab_size_per_layer_input": 257, "hidden_size_per_layer_input": 8},
    **{"block_auto_adjust_ff_dim": False, "linear_num_value_heads": 4, "linear_num_key_heads": 2},
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "mamba_n_heads", "mamba_d_head"), 8),
    **{"mamba_d_state": 16, "mamba_d_ssm": 64, "dtype": "float32", "is_decoder": True},
    **{"rotary_dim": 4, "attention_window_size": 8},
}
"""Values of whichever of these settings a config has."""
_OTHERS: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "gemma3n": {"num_kv_shared_layers": 2, "laurel_rank": 4, "activation_sparsity_pattern": [0.0] * 4},
    "recurrent_gemma": {"layer_types": None, "num_key_value_heads": 1},
    "bamba": {"layer_types": None, "attn_layer_indices": [1], "mamba_expand": 2},
    "falcon_h1": {"layer_types": None, "mamba_n_heads": 8},
    "falcon": {"num_kv_heads": 4},
    "xlnet": {"d_head": 8},
    "dots3_note": {"num_key_value_heads": 4},
    "zaya": {"num_experts_per_tok": 1},
    "kimi_linear": {"linear_head_dim": 8, "linear_num_heads": 4},
    "gemma4_assistant": {"hidden_size_per_layer_input": 0},
}


def tiny_config(kind: str) -> PreTrainedConfig:
    """Return a config of a few thousand parameters; of a model with several towers, that of its text model."""
    text = CONFIG_MAPPING[kind]().get_text_config()
    known = set(text.to_dict()) | set(type(text).attribute_map)
    values = {name: value for name, value in _SIZES.items() if name in known}
    if getattr(text, "layer_types", None):
        distinct = list(dict.fromkeys(text.layer_types))
        values["layer_types"] = (distinct * BLOCKS)[:BLOCKS]
    if "kv_lora_rank" in known:  # keys and values of all heads come from one low-rank latent
        values |= {"num_key_value_heads": 4, "rotary_dim": 8}
    values |= _OTHERS.get(kind.removesuffix("_text"), {})
    return type(text)(**{name: value for name, value in values.items() if name != "layer_types" or value is not None})


def tiny_module(kind: str) -> Any:
    """Return a random model whose weights are large enough that differences show."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module: Any = AutoModelForCausalLM.from_config(tiny_config(kind), dtype=torch.float32)
        for weight in module.parameters():
            if weight.dim() > 1:
                weight.data.normal_(0, 0.7 / weight.shape[-1] ** 0.5)
        module.eval()(input_ids=torch.zeros(1, 2, dtype=torch.int64), use_cache=False)
    return module


def plain_mlps(architecture: Architecture) -> list[int]:
    """Layers with an MLP of two or three linear modules, unlike a mixture of experts."""
    layers = []
    for layer in range(len(architecture.blocks)):
        with suppress(UserError):
            architecture.matrices(layer)
            layers.append(layer)
    return layers


def relative(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        return float("inf")
    scale = max(expected.abs().max().item(), 1e-12) if expected.numel() else 1.0
    return (actual - expected).abs().max().item() / scale if expected.numel() else 0.0


class Checks:
    """Checks of one architecture; each returns the largest relative difference, or raises a UserError as a refusal."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.source = str(folder / "model")
        tiny_module(kind).save_pretrained(self.source)
        # Loaded again by transformers, because some classes tie weights only then.
        self.module: Any = AutoModelForCausalLM.from_pretrained(self.source, dtype=torch.float32).eval()
        byte_tokenizer().save_pretrained(self.source)
        made = small_world(folder)
        made.database.dispose()
        rows = Path(made.text.dataset).read_text().splitlines()
        (folder / "held.jsonl").write_text("\n".join(reversed(rows[:100])))
        self.text, self.data = made.text, made.data

    @cached_property
    def model(self) -> LanguageModel:
        return LanguageModel.load(self.source, "cpu", torch.float32)

    @contextmanager
    def world(self) -> Iterator[World]:
        """The model with the text, and the database while the context lasts."""
        with opened(sqlite_url(self.data)) as database:
            yield World(self.data, database, self.model, self.text)

    @cached_property
    def layer(self) -> int:
        """The last but one block with an MLP that can be replaced."""
        architecture = Architecture(self.module, self.source)
        plain = plain_mlps(architecture)
        if not plain:
            architecture.matrices(len(architecture.blocks) - 1)  # raises the refusal
        return plain[-2] if len(plain) > 1 else plain[-1]

    @cached_property
    def mlp(self) -> tuple[nn.Module, nn.Module]:
        """First and last module of the layer's MLP in the independent copy of the model."""
        architecture = Architecture(self.module, self.source)
        block, names = architecture.block(self.layer), architecture.mlp_names(self.layer)
        return getattr(block, names[0]), getattr(block, names[1])

    @cached_property
    def run(self) -> Run:
        with self.world() as world:
            return world.train("alone", layer=self.layer, tokens=1024)

    def ids(self, dataset: str, tokens: int, order: Any) -> Tensor:
        text = self.text.model_copy(update={"dataset": str(self.folder / dataset)})
        (ids_SL,) = sequence_batches(text, byte_tokenizer(), tokens, 0, order, batch=10_000)
        return torch.from_numpy(ids_SL)

    @contextmanager
    def _hooked(self, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> Iterator[list[Tensor]]:
        """Inputs and outputs of the MLP in the independent model, whose output ``change`` replaces."""
        seen: list[Tensor] = []
        first, last = self.mlp
        handles = [
            first.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].clone())),
            last.register_forward_hook(lambda _module, _inputs, output: hook(output)),
        ]

        def hook(output: Tensor) -> Tensor:
            changed = output if change is None else change(seen[-1], output)
            seen.append(output.clone())
            return changed

        try:
            yield seen
        finally:
            for handle in handles:
                handle.remove()

    @torch.no_grad()
    def _logits(self, ids_SL: Tensor) -> Tensor:
        logits: Tensor = self.module(input_ids=ids_SL, use_cache=False).logits
        return logits

    def mlp_input(self, ids_SL: Tensor) -> Tensor:
        with self._hooked() as seen:
            self._logits(ids_SL)
        return seen[0].reshape(-1, seen[0].shape[-1])

    def capture(self) -> float:
        """Captured inputs and outputs against clones in forward hooks."""
        ids_SL = self.ids("text.jsonl", 128, "as-is")
        captured = self.model.capture_layers([self.layer], ids_SL)[self.layer]
        with self._hooked() as seen:
            self._logits(ids_SL)
        return max(
            relative(actual, expected.reshape(actual.shape)) for actual, expected in zip(captured, seen, strict=True)
        )

    def evaluate(self) -> float:
        """Loss and loss increase against plain losses with the layer in a hook."""
        config = EvaluateConfig(
            text=self.text.model_copy(update={"dataset": str(self.folder / "held.jsonl")}),
            tokens=256,
            resamples=100,
            prompts=1,
            jacobian_tokens=0,
        )
        result: Any = evaluate(Evaluator.open(config, self.model, NO_CALLBACKS), self.run, seen_text=False).result
        ids_SL, losses = self.ids("held.jsonl", 256, "as-is"), []
        for change in (None, self._replaced):
            with self._hooked(change):
                log_p = self._logits(ids_SL)[:, :-1].double().log_softmax(-1)
            losses.append(-log_p.gather(2, ids_SL[:, 1:, None]).mean().item())
        actual = torch.tensor([result.ce_original, result.loss_increase.value])
        return relative(actual.double(), torch.tensor([losses[0], losses[1] - losses[0]]).double())

    @torch.no_grad()
    def _replaced(self, x: Tensor, output: Tensor) -> Tensor:
        changed: Tensor = self.run.layer(x.reshape(-1, x.shape[-1])).output_TO
        return changed.reshape(output.shape)

    @torch.no_grad()
    def _steered(self, x: Tensor, output: Tensor) -> Tensor:
        """Add 2 units (of 1) of an expert's contribution per coefficient."""
        layer: Any = self.run.layer
        flat = x.reshape(-1, x.shape[-1])
        added: Tensor = 2.0 * layer.table[self._expert] * layer.dense_output(flat)
        return output + added.reshape(output.shape)

    @cached_property
    def _expert(self) -> int:
        """An expert that is active on the indexed text."""
        with torch.no_grad():
            routing = self.run.layer.route(self.mlp_input(self.ids("text.jsonl", 640, "shuffled")))
        counts = torch.bincount(routing.indices_TK[routing.activations_TK > 0], minlength=40)
        return int(counts.argmax())

    def steer(self) -> float:
        """Probabilities of greedily steered tokens against hooks without a cache."""
        sampling = Sampling(max_tokens=8, temperature=0.0, repetition_penalty=1.0)
        edits = (Edit(expert=self._expert, mode="add", strength=2.0),)
        config = SteeringConfig(prompt=PROMPT, edits=edits, sampling=sampling)
        units = {self.run.name: {self._expert: 1.0}}
        events = [
            event
            for event in steer(self.model, self.run, config, units)
            if isinstance(event, TokenEvent) and event.variant == "steered"
        ]
        ids, largest = [0, *byte_tokenizer()(PROMPT)["input_ids"]], 0.0
        with self._hooked(self._steered):
            for event in events:
                p_V = self._logits(torch.tensor([ids]))[0, -1].float().softmax(-1)
                largest = max(
                    largest, abs(p_V[event.id].item() - event.probability), (p_V.max() - p_V[event.id]).item()
                )
                ids.append(event.id)
        return largest

    def circuit(self) -> float:
        """The target's value and predicted changes against autograd at a zero that a hook adds to the MLP's output."""
        found = trace(self.model, self.run, CircuitConfig(prompt=PROMPT))
        ids_1T = torch.tensor([[0, *byte_tokenizer()(PROMPT)["input_ids"]]])
        added: list[Tensor] = []

        def add_zero(_x: Tensor, output: Tensor) -> Tensor:
            added.append(torch.zeros_like(output, requires_grad=True))
            return output + added[0]

        self.module.requires_grad_(False)
        with self._hooked(add_zero) as seen:
            logits_V = self.module(input_ids=ids_1T, use_cache=False).logits[0, -1]
        value = logits_V[found.candidates[0].id] - logits_V.mean()
        (gradient,) = torch.autograd.grad(value, added)
        layer: Any = self.run.layer
        nodes = [node for node in found.nodes if node.kind == "expert" and node.method == "gradient"]
        with torch.no_grad():
            x_TI, gradient_TO = seen[0].reshape(ids_1T.numel(), -1), gradient.reshape(ids_1T.numel(), -1)
            rows_TO = torch.stack(
                [node.activation * layer.table[node.expert] * layer.dense_output(x_TI)[node.position] for node in nodes]
            )
            expected = -(gradient_TO[[node.position for node in nodes]] * rows_TO).sum(1)
        actual = torch.tensor([found.value, *(node.predicted for node in nodes)])
        return relative(actual, torch.cat([value.detach().reshape(1), expected]))

    def vectors(self) -> float:
        """A steering vector against differences of the block's hooked output without the expert."""
        with self.world() as world:
            world.index(self.run)
            (actual,) = mean_outputs(self.run, [self._expert], self.model, world.database)
            sequences = _sequences_of(self.run, self._expert, world.database)
        layer: Any = self.run.layer
        block, total, tokens = Architecture(self.module, "").block(self.layer), torch.zeros(()), 0
        outputs: list[Tensor] = []

        def without(x: Tensor, output: Tensor) -> Tensor:
            flat = x.reshape(-1, x.shape[-1])
            with torch.no_grad():
                routing = layer.route(flat)
                activation_T = (routing.activations_TK * (routing.indices_TK == self._expert)).sum(1)
                added = activation_T[:, None] * layer.table[self._expert] * layer.dense_output(flat)
            active.append(activation_T > 0)
            changed: Tensor = output - added.reshape(output.shape)
            return changed

        handle = block.register_forward_hook(
            lambda _module, _inputs, output: outputs.append(
                (output[0] if isinstance(output, tuple | list) else output).clone()
            )
        )
        try:
            for ids in sequences:
                outputs.clear()
                active: list[Tensor] = []
                self._logits(torch.tensor([ids]))
                with self._hooked(without):
                    self._logits(torch.tensor([ids]))
                total = total + (outputs[0] - outputs[1]).double()[0][active[0]].sum(0)
                tokens += int(active[0].sum())
        finally:
            handle.remove()
        return relative(actual.vector_W.double(), total / tokens)

    def attach(self) -> float:
        """Logits of a model with the attached layer against those with the layer in a hook."""
        ids_SL = self.ids("text.jsonl", 64, "as-is")
        with self._hooked(self._replaced):
            expected = self._logits(ids_SL)
        user = AutoModelForCausalLM.from_pretrained(self.source, dtype=torch.float32).eval()
        layer = mxd.load("alone", data=self.data)
        with torch.no_grad(), layer.attach(user):
            actual = user(input_ids=ids_SL, use_cache=False).logits
        return relative(actual, expected)
