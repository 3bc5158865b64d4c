"""Labelled texts, and what a layer's experts, the MLP's neurons and a random gate make of them.

Shapes: E examples, T tokens of a text, N columns (experts or neurons).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.errors import NotFoundError, UserError
from trainer.language_model import LanguageModel
from trainer.layers.kernels import gate
from trainer.layers.sparse import SparseLayer
from trainer.probing.config import ProbeConfig
from trainer.progress import Progress, ShouldStop
from trainer.readers import is_known, read
from trainer.tokens import separator_id

Columns = npt.NDArray[np.float32]
SHORTEST = 5
"""Tokens; shorter texts are left out, as in the paper's code."""
TOKENS_OF_A_TEXT = 4
"""Drawn from each text where single tokens are probed."""
SMALLEST_CLASS = 10


class Stopped(UserError):
    """Somebody asked to stop; nothing was written."""


@dataclass(frozen=True)
class LabelledText:
    """One text."""

    label: str
    text: str


def read_labelled(config: ProbeConfig) -> list[LabelledText]:
    """Labelled texts, at most ``config.limit`` of them drawn at random; classes of fewer than ten are left out.

    Raises:
        UserError: the file cannot be read, has no such columns, or fewer than two classes.
    """
    path = Path(os.path.expanduser(config.labels))
    if not path.is_file():
        raise NotFoundError(
            f"There is no file {config.labels}; give --labels with a .jsonl or .csv file of labelled texts."
        )
    if not is_known(path.name) or ".txt" in path.suffixes:
        raise UserError(f"{path} is of no known kind; give --labels with a .jsonl or .csv file (also .gz or .zst).")
    texts, labels = (read(path, column) for column in (config.text_column, config.label_column))
    found = [LabelledText(label, text) for label, text in zip(labels, texts, strict=True) if label and text.strip()]
    order = np.random.default_rng(config.seed).permutation(len(found))[: config.limit]
    chosen = [found[place] for place in order]
    counts = dict.fromkeys({one.label for one in chosen}, 0)
    for one in chosen:
        counts[one.label] += 1
    kept = {label for label, count in counts.items() if count >= SMALLEST_CLASS}
    if len(kept) < 2:
        raise UserError(f"{path} has {len(kept)} classes of {SMALLEST_CLASS} texts or more; at least two are needed.")
    return [one for one in chosen if one.label in kept]


@dataclass(frozen=True)
class Examples:
    """What is probed: a row an example, the same rows in every kind of column."""

    labels_E: npt.NDArray[np.str_]
    text_E: npt.NDArray[np.int64]
    """Which text an example is of; those of one text are never parted by a split."""
    columns: Mapping[str, Columns]
    """By kind: ``experts`` of the run, ``neurons`` of the MLP, ``random-gate``."""


@torch.no_grad()
def gather_examples(
    config: ProbeConfig,
    language_model: LanguageModel,
    index: int,
    layer: SparseLayer,
    progress: Progress,
    should_stop: ShouldStop,
) -> Examples:
    """Read every text once.

    Raises:
        UserError: as ``read_labelled``; or somebody asked to stop.
    """
    texts = read_labelled(config)
    rows = _Rows(language_model, index, layer, config)
    for number, one in enumerate(texts):
        if should_stop():
            raise Stopped("Probing was stopped; nothing was changed. Run the same command to start it again.")
        rows.add(number, one)
        progress(number + 1, len(texts), "")
    return rows.examples()


class _Rows:
    def __init__(self, language_model: LanguageModel, index: int, layer: SparseLayer, config: ProbeConfig) -> None:
        self.language_model, self.index, self.layer, self.config = language_model, index, layer, config
        self.tokenizer = language_model.tokenizer
        self.separator = separator_id(self.tokenizer)
        self.generator = np.random.default_rng(config.seed)
        self.random_gate = _random_gate(layer, config.seed)
        self.labels: list[str] = []
        self.texts: list[int] = []
        self.rows: dict[str, list[Columns]] = {"experts": [], "neurons": [], "random-gate": []}

    def add(self, number: int, one: LabelledText) -> None:
        """Read a text; one that is too short is left out."""
        ids = self.tokenizer(one.text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) < SHORTEST:
            return
        room = min(self.config.tokens, self.language_model.max_tokens - 1)
        ids = ids[:room] if self.config.window == "first" else ids[-room:]
        kinds = self._columns([self.separator, *ids])
        places = self._places(len(ids))
        for kind, values_TN in kinds.items():
            self.rows[kind] += [values_TN[place].mean(0).cpu().numpy() for place in places]
        self.labels += [one.label] * len(places)
        self.texts += [number] * len(places)

    def _places(self, length: int) -> list[Tensor]:
        """Positions of the tokens that make each example; the separator in front is in none."""
        if self.config.level == "text":
            return [torch.arange(1, length + 1)]
        chosen = self.generator.choice(length, size=min(TOKENS_OF_A_TEXT, length), replace=False)
        return [torch.tensor([place + 1]) for place in chosen.tolist()]

    def _columns(self, ids: list[int]) -> dict[str, Tensor]:
        hidden: list[Tensor] = []
        with _watching(self.language_model.hidden_reader(self.index), hidden.append):
            captured = self.language_model.capture(self.index, torch.tensor([ids]))
        routing = self.layer.route(captured.read_by(self.layer).float())
        experts_TN = _dense(routing.coefficients_TK, routing.indices_TK, self.layer.config.num_experts)
        weight_NI, bias_N = self.random_gate
        k = min(self.layer.config.k, len(bias_N))
        random_TN = _dense(*gate(captured.input_TI.float(), weight_NI, bias_N, k), len(bias_N))
        return {
            "experts": experts_TN,
            "neurons": hidden[0].reshape(-1, hidden[0].shape[-1]).float(),
            "random-gate": random_TN,
        }

    def examples(self) -> Examples:
        """All that was read."""
        columns = {kind: np.stack(rows).astype(np.float32) for kind, rows in self.rows.items()}
        return Examples(np.array(self.labels), np.array(self.texts), columns)


def _random_gate(layer: SparseLayer, seed: int) -> tuple[Tensor, Tensor]:
    """A gate of the layer's size that was never fitted: what tells texts apart without any learning."""
    experts, width, device = layer.config.num_experts, layer.config.input_width, layer.table.device
    generator = torch.Generator().manual_seed(seed)
    random_NI = torch.randn(experts, width, generator=generator) / width**0.5
    return random_NI.to(device), torch.zeros(experts, device=device)


def _dense(coefficients_TK: Tensor, indices_TK: Tensor, count: int) -> Tensor:
    return coefficients_TK.new_zeros(len(coefficients_TK), count).scatter(1, indices_TK, coefficients_TK)


@contextmanager
def _watching(module: nn.Module, tell: Callable[[Tensor], None]) -> Iterator[None]:
    """Tell a function what a module is given, while inside."""
    handle = module.register_forward_pre_hook(lambda _module, inputs: tell(inputs[0]))
    try:
        yield
    finally:
        handle.remove()
