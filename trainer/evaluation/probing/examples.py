"""Features of labelled texts: activations of a layer's experts, of the MLP's neurons, and of a random gate.

Shapes: E examples, T tokens of a text, F features (experts or neurons), I input width, N experts, K active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mxd.trainer.config.analysis import ProbeConfig
from mxd.trainer.data.labelled import LabelledText, labelled_file, read_labelled
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import start_token_id
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.ops import gate
from mxd.trainer.utils.callbacks import Callbacks

Features = npt.NDArray[np.float32]
MIN_TOKENS = 5
"""Shorter texts are skipped, as in the paper's code."""
TOKENS_PER_TEXT = 4
"""Tokens drawn from each text when single tokens are probed."""
MIN_CLASS_SIZE = 10
"""Classes with fewer texts are skipped."""


def sample_labelled(config: ProbeConfig) -> list[LabelledText]:
    """Read at most ``config.limit`` random labelled texts, without classes smaller than ``MIN_CLASS_SIZE``.

    Raises:
        NotFoundError: there is no such file.
        UserError: the file cannot be read, lacks a column, or has fewer than two large classes.
    """
    path = labelled_file(config.labels)
    labelled = list(read_labelled(path, config.text_column, config.label_column))
    order = np.random.default_rng(config.seed).permutation(len(labelled))[: config.limit]
    sample = [labelled[index] for index in order]
    counts = Counter(example.label for example in sample)
    large = {label for label, count in counts.items() if count >= MIN_CLASS_SIZE}
    if len(large) < 2:
        raise UserError(
            f"Too few classes: {path} has {len(large)} with at least {MIN_CLASS_SIZE} texts. At least 2 are needed."
        )
    return [example for example in sample if example.label in large]


@dataclass(frozen=True)
class ProbeExamples:
    """Labelled examples with their features by kind."""

    labels_E: npt.NDArray[np.str_]
    text_E: npt.NDArray[np.int64]
    """Index of each example's text. Examples of one text always belong to the same split."""
    features: Mapping[str, Features]
    """Features, [E, F], of each kind: ``experts``, ``neurons`` and ``random-gate``."""


@torch.no_grad()
def collect_examples(
    config: ProbeConfig,
    language_model: LanguageModel,
    layer: int,
    sparse_layer: SparseLayer,
    callbacks: Callbacks,
    start_token: str | None = None,
) -> ProbeExamples:
    """Compute the features of every labelled text, after the run's start token or, by default, the language model's.

    Raises:
        NotFoundError: as ``sample_labelled``.
        UserError: as ``sample_labelled``.
        CancelledError: the task was cancelled.
    """
    texts = sample_labelled(config)
    builder = _ExampleBuilder(language_model, layer, sparse_layer, config, start_token)
    for number, text in enumerate(texts):
        callbacks.check_cancelled()
        builder.add(number, text)
        callbacks.on_progress(number + 1, len(texts), "")
    return builder.examples()


class _ExampleBuilder:
    def __init__(
        self,
        language_model: LanguageModel,
        layer: int,
        sparse_layer: SparseLayer,
        config: ProbeConfig,
        start_token: str | None,
    ) -> None:
        self.language_model, self.layer, self.sparse_layer, self.config = language_model, layer, sparse_layer, config
        self.tokenizer = language_model.tokenizer
        self.start_token = start_token_id(self.tokenizer, start_token)
        self.generator = np.random.default_rng(config.seed)
        self.random_gate = random_gate_weights(sparse_layer, config.seed)
        self.labels: list[str] = []
        self.texts: list[int] = []
        self.rows: dict[str, list[Features]] = {"experts": [], "neurons": [], "random-gate": []}

    def add(self, number: int, labelled: LabelledText) -> None:
        """Add the examples of a text, unless it is too short."""
        ids = self.tokenizer(labelled.text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) < MIN_TOKENS:
            return
        max_tokens = min(self.config.tokens, self.language_model.max_tokens - 1)
        ids = ids[:max_tokens] if self.config.window == "first" else ids[-max_tokens:]
        features = self._features([self.start_token, *ids])
        positions = self._positions(len(ids))
        for kind, values_TF in features.items():
            self.rows[kind] += [values_TF[position].mean(0).cpu().numpy() for position in positions]
        self.labels += [labelled.label] * len(positions)
        self.texts += [number] * len(positions)

    def _positions(self, length: int) -> list[Tensor]:
        """Positions of the tokens of each example. The start token is never included."""
        if self.config.level == "text":
            return [torch.arange(1, length + 1)]
        chosen = self.generator.choice(length, size=min(TOKENS_PER_TEXT, length), replace=False)
        return [torch.tensor([position + 1]) for position in chosen.tolist()]

    def _features(self, ids: list[int]) -> dict[str, Tensor]:
        """Features of each token of a text, [T, F], of each kind."""
        hidden: list[Tensor] = []
        with recorded_inputs(self.language_model.down_projection(self.layer), hidden.append):
            captured = self.language_model.capture(self.layer, torch.tensor([ids]))
        routing = self.sparse_layer.route(captured.inputs_for(self.sparse_layer).float())
        weight_NI, bias_N = self.random_gate
        k = min(self.sparse_layer.config.k, len(bias_N))
        random_routing = gate(captured.input_TI.float(), weight_NI, bias_N, k)
        return {
            "experts": to_dense(routing.coefficients_TK, routing.indices_TK, self.sparse_layer.config.num_experts),
            "neurons": hidden[0].reshape(-1, hidden[0].shape[-1]).float(),
            "random-gate": to_dense(*random_routing, len(bias_N)),
        }

    def examples(self) -> ProbeExamples:
        """Return all added examples."""
        features = {kind: np.stack(rows).astype(np.float32) for kind, rows in self.rows.items()}
        return ProbeExamples(np.array(self.labels), np.array(self.texts), features)


def random_gate_weights(sparse_layer: SparseLayer, seed: int) -> tuple[Tensor, Tensor]:
    """Return weights [N, I] and biases [N] of an untrained gate of the layer's size, as a baseline without learning."""
    config, device = sparse_layer.config, sparse_layer.table.device
    generator = torch.Generator().manual_seed(seed)
    random_NI = torch.randn(config.num_experts, config.input_width, generator=generator) / config.input_width**0.5
    return random_NI.to(device), torch.zeros(config.num_experts, device=device)


def to_dense(coefficients_TK: Tensor, indices_TK: Tensor, count: int) -> Tensor:
    """Return the activations of all experts, [T, N], with zeros for those that are not selected."""
    return coefficients_TK.new_zeros(len(coefficients_TK), count).scatter(1, indices_TK, coefficients_TK)


@contextmanager
def recorded_inputs(module: nn.Module, record: Callable[[Tensor], None]) -> Iterator[None]:
    """Call ``record`` with every input of a module."""
    handle = module.register_forward_pre_hook(lambda _module, inputs: record(inputs[0].clone()))
    try:
        yield
    finally:
        handle.remove()
