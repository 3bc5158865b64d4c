"""Small language models that are made in code, layers, runs, and a folder with text, settings and a database."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from sqlalchemy import Engine, inspect, select
from sqlalchemy.orm import Session
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from mxd.trainer.analysis.indexing.build import IndexResult, build_index
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.config.layer import LayerConfig, Method, method_traits
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import MxD, Routing, SparseLayer
from mxd.trainer.layers.variants import build_layer
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import Base
from mxd.trainer.storage.run import Run
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.train import TrainResult, train_layers
from mxd.trainer.utils.callbacks import Callbacks

VOCABULARY = 257
END = "<|endoftext|>"
ENDLESS_TEMPLATE = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
"""A chat template of two nested loops, which takes hours."""

_SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
_LONG: dict[str, Any] = _SIZES | {"intermediate_size": 24, "max_position_embeddings": 128}
_LLAMA_LIKE: dict[str, Any] = _LONG | {"num_key_value_heads": 2}


def _config(kind: str, **settings: Any) -> PreTrainedConfig:
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
    return AutoConfig.for_model(kind, vocab_size=VOCABULARY, **special, **settings)


CONFIGS: dict[str, PreTrainedConfig] = {
    "gpt2": _config("gpt2", n_embd=16, n_layer=3, n_head=2, n_positions=128),
    "gpt-neox": _config("gpt_neox", **_LONG),
    **{
        kind: _config(kind, **_LLAMA_LIKE, head_dim=8)
        for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3")
    },
    "phi": _config("phi", **_LLAMA_LIKE),
    "opt": _config("opt", **_SIZES, ffn_dim=24, max_position_embeddings=128, word_embed_proj_dim=16),
    "falcon": _config("falcon", **_SIZES, ffn_hidden_size=24),
}
SCALED = {"granite": _config("granite", **_LLAMA_LIKE, residual_multiplier=0.22)}
"""Families that add a multiple of the MLP's output to the residual stream."""

OTHER_CACHES: dict[str, PreTrainedConfig] = {
    "lfm2": _config(
        "lfm2",
        **_LLAMA_LIKE,
        head_dim=8,
        block_ff_dim=24,
        block_auto_adjust_ff_dim=False,
        layer_types=["conv", "full_attention", "conv"],
    ),
    "gemma3n": _config(
        "gemma3n_text",
        **_LLAMA_LIKE | {"num_hidden_layers": 4},
        head_dim=8,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY,
        laurel_rank=4,
        altup_num_inputs=2,
        num_kv_shared_layers=2,
        activation_sparsity_pattern=[0.0] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        sliding_window=8,
    ),
}
"""Families whose cache is not one pair of keys and values per block: convolution states, shared pairs."""


@cache
def byte_tokenizer() -> PreTrainedTokenizerBase:
    """One token per byte, and the end-of-text token with id 0."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {END: 0} | {character: place + 1 for place, character in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=END, pad_token=END)


def tiny_language_model(family: str = "llama", seed: int = 0) -> LanguageModel:
    """A language model of a family with a few thousand random weights, on the CPU in float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # A copy: who changes the config of one changes none of the others.
        module = AutoModelForCausalLM.from_config(
            deepcopy({**CONFIGS, **OTHER_CACHES, **SCALED}[family]), dtype=torch.float32
        )
    for parameter in module.parameters():
        # Starting values are so small that every next-token distribution would be flat and every test blind.
        parameter.data.mul_(3.0) if parameter.dim() > 1 else None
    return LanguageModel(module, byte_tokenizer(), f"tiny-{family}")


def sure_language_model() -> LanguageModel:
    """A tiny language model with confident, mostly wrong predictions."""
    language_model = tiny_language_model()
    language_model.module.get_output_embeddings().weight.data.mul_(25.0)
    return language_model


def saved_language_model(folder: Path, family: str = "llama", seed: int = 0) -> Path:
    """``tiny_language_model`` in a folder that ``LanguageModel.load`` reads."""
    return saved(tiny_language_model(family, seed), folder)


def saved(language_model: LanguageModel, folder: Path) -> Path:
    language_model.module.save_pretrained(folder)
    language_model.tokenizer.save_pretrained(folder)
    return folder


TOKENS, WIDTH, EXPERTS, STEPS = 32, 12, 40, 9
"""Sizes of ``layer_trainer``."""


def layer_config(method: Method = "mxd", widths: tuple[int, int, int] = (12, 20, 10), **changes: Any) -> LayerConfig:
    """Settings of a layer of any method: 33 experts, 5 of them active; an autoencoder reads what it writes."""
    traits = method_traits(method)
    settings: dict[str, Any] = {
        "method": method,
        "input_width": widths[2] if method == "autoencoder" else widths[0],
        "hidden_width": widths[1],
        "output_width": widths[2],
        "num_experts": 33,
        "k": 33 if traits.status == "imported" else 5,
        "activation": "silu",
        "encoder": "glu",
        "rank": 3 if traits.rank else None,
    }
    return LayerConfig(**(settings | changes))


def routing_to(indices: list[list[int]]) -> Routing:
    """Activations of 1 of these experts."""
    indices_TK = torch.tensor(indices)
    return Routing(torch.ones(indices_TK.shape), indices_TK)


def random_layer(method: Method = "mxd", seed: int = 0, **changes: Any) -> SparseLayer:
    """A layer with random parameters, the decoder included; ``changes`` are those of ``layer_config``."""
    layer = build_layer(layer_config(method, **changes))
    generator = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        parameter.data.normal_(0, 0.5, generator=generator)
    return layer


def layer_trainer(
    method: Method = "mxd", min_k: int | None = None, lr: float | Tensor = 0.0, **settings: Any
) -> LayerTrainer:
    torch.manual_seed(0)
    traits = method_traits(method)
    layer = build_layer(
        layer_config(
            method,
            (WIDTH, 20, WIDTH),
            num_experts=EXPERTS,
            k=4,
            activation="gelu",
            encoder="mlp",
            min_k=min_k,
            mixing=traits.mixing,
        )
    )
    config = TrainConfig(
        name="small",
        language_model="none",
        layer=0,
        method=method,
        text=TextConfig(dataset="none"),
        tokens=STEPS * TOKENS,
        init="random",
        min_k=min_k,
        **({"optimizer": OptimizerConfig(batch_tokens=TOKENS)} | settings),
    )
    optimizer = torch.optim.AdamW(layer.parameters(), lr=lr, weight_decay=0.0, fused=True)
    return LayerTrainer(layer, optimizer, config, STEPS, torch.zeros(EXPERTS, dtype=torch.int64))


def trap(language_model: LanguageModel, index: int) -> MxD:
    """The original weights with one always-active expert of ones: a perfect layer whose routing does nothing."""
    layer = build_layer(layer_config(num_experts=12, k=1, **vars(language_model.architecture.mlp_shape(index))))
    assert isinstance(layer, MxD) and layer.encoder_gate is not None
    weights = language_model.architecture.encoder_weights(index)
    _, writer = language_model.architecture.matrices(index)
    assert weights.gate_weight_HI is not None and weights.gate_bias_H is not None
    with torch.no_grad():
        layer.encoder.weight.copy_(weights.weight_HI)
        layer.encoder.bias.copy_(weights.bias_H)
        layer.encoder_gate.weight.copy_(weights.gate_weight_HI)
        layer.encoder_gate.bias.copy_(weights.gate_bias_H)
        layer.decoder.weight.copy_(writer.weight)  # type: ignore[arg-type]
        layer.gate.weight.zero_()
        layer.gate.bias.fill_(-1.0)
        layer.gate.bias[0] = 1.0
        layer.scaling_NO[0] = 1.0
    return layer


Row = TypeVar("Row", bound=Base)


@dataclass(frozen=True)
class World:
    """Folder of a test's runs, and the inputs of training."""

    data: Path
    database: Engine
    language_model: LanguageModel
    text: TextConfig

    def config(self, name: str = "small", **changes: Any) -> TrainConfig:
        """Settings of a run of 24 steps, three buffers and 40 experts, 4 of them active."""
        settings: dict[str, Any] = {
            "name": name,
            "language_model": self.language_model.source,
            "layer": 1,
            "text": self.text,
            "tokens": 24 * 64,
            "num_experts": 40,
            "k": 4,
            "optimizer": OptimizerConfig(learning_rate=0.01, batch_tokens=64, buffer_tokens=512),
            "checkpoint_every": 512,
            "log_every": 4,
        }
        return TrainConfig(**(settings | changes))

    def train(self, name: str = "small", **changes: Any) -> Run:
        """Train a run; ``changes`` are those of ``config``."""
        train_layer(self.config(name, **changes), self.data, self.database, self.language_model)
        return Run.load(name, self.data)

    def index(self, run: Run, **changes: Any) -> IndexResult:
        """Index a run on 640 tokens with few examples; ``changes`` are those of the settings."""
        settings: dict[str, Any] = {"text": self.text, "tokens": 640, "top_examples": 3, "examples_per_bin": 2}
        config = IndexConfig.model_validate(settings | changes)
        return build_index(run, config, self.language_model, self.database)

    def rows(self, table: type[Row]) -> list[Row]:
        """All rows of a table, in the order of its keys."""
        with Session(self.database) as session:
            return list(session.scalars(select(table).order_by(*inspect(table).primary_key)))

    def weights(self, name: str) -> dict[str, Tensor]:
        """Weights of a trained run."""
        return Run.load(name, self.data).layer.state_dict()

    def check_same_weights(self, one: str, other: str, rtol: float = 0, atol: float = 0) -> None:
        """Two runs have the same weights: bit-identical ones, or within a tolerance."""
        torch.testing.assert_close(self.weights(other), self.weights(one), rtol=rtol, atol=atol)


def stop_after(calls: int) -> Callbacks:
    """Callbacks that stop the work when they are asked for the ``calls``-th time."""
    numbers = count(1)
    return Callbacks(is_cancelled=lambda: next(numbers) >= calls)


def small_world(folder: Path) -> World:
    """Create a set-up in ``folder``: 300 documents of random words, context length 16."""
    generator = np.random.default_rng(0)
    words = ["red", "blue", "ran", "sat", "the", "a", "old", "fox", "dog", "very", "and", "sang"]
    path = folder / "text.jsonl"
    lines = [" ".join(generator.choice(words, size=12)) for _ in range(300)]
    path.write_text("".join(f'{{"text": "{line}."}}\n' for line in lines))
    return World(
        data=folder / "data",
        database=open_trainer_database(sqlite_url(folder / "data")),
        language_model=tiny_language_model(),
        text=TextConfig(dataset=str(path), context_length=16),
    )


def indexed_world(folder: Path) -> World:
    """A set-up with the trained and indexed run ``small`` of a language model that is on disk."""
    world = small_world(folder)
    source = str(saved_language_model(folder / "language-model"))
    language_model = LanguageModel.load(source, "cpu")
    train_layer(world.config(language_model=source), world.data, world.database, language_model)
    index = IndexConfig(text=world.text, tokens=2_000)
    build_index(Run.load("small", world.data), index, language_model, world.database)
    return world


def train_layer(
    config: TrainConfig, data: Path, database: Engine, language_model: LanguageModel, **options: Any
) -> TrainResult:
    """Train one layer."""
    (result,) = train_layers([config], data, database, language_model, **options)
    return result


def run_of(world: World, name: str = "small", layer: int = 1, seed: int | None = None) -> Run:
    """A run with random weights that is not on disk; the seed is by default that of the layer's number."""
    run = Run(world.data, TrainConfig.model_validate(world.config(name=name, layer=layer).model_dump()))
    run.__dict__["layer"] = random_layer(widths=(16, 20, 16), seed=layer if seed is None else seed)
    return run


LINES = [
    "The quick brown fox jumps over the lazy dog, again and again.",
    "def add(a, b):\n    return a + b\n",
    "Größe, naïveté, 日本語, Привет, 👩‍👩‍👧 and € 5.",
]


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2 style byte-level BPE with added tokens, which are not byte-encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=[END], show_progress=False)
    )
    tokenizer.add_tokens(["   ", "naïve ż"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, model_max_length=16)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama 2 style SentencePiece with a leading space and byte fallback."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁▁", "é", "�"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁", "▁")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<unk>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def metaspace() -> PreTrainedTokenizerFast:
    """T5 style Unigram: spaces as ▁, no separator."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    )
    tokenizer.add_tokens([AddedToken("<extra>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def word_piece() -> PreTrainedTokenizerFast:
    """BERT style WordPiece: continuation pieces, spaces removed before punctuation."""
    pieces = ["[UNK]", "do", "not", "##ing", "n't", ".", ",", "'", "s", "##s"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
