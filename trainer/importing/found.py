"""What every reader of another program's files gives: a layer in our terms, and where it stands in the language model.

Shapes: I input width, N experts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from trainer.config import Activation, Encoder, Method
from trainer.errors import UserError

Reads = Literal["mlp-input", "folded-norm", "norm"]
"""mlp-input: what the MLP is given. folded-norm: what the norm in front of it gives before its weight and bias. norm:
of an RMSNorm the same, of a LayerNorm what it gives behind them."""


@dataclass(frozen=True)
class Found:
    """One layer as its file has it, with our names for its tensors."""

    method: Method
    k: int
    """K; of a method without a top-k, N."""
    tensors: Mapping[str, Tensor]
    """Under the names of ``SparseLayer.state_dict``."""
    reads: Reads
    layer: int | None
    """Which block's MLP, where the file says so."""
    weights: Path
    """The file that the tensors came from."""
    version: str | None = None
    """Of the program that wrote it, where it says so."""
    activation: Activation | None = None
    """Of an MxD's encoder."""
    encoder: Encoder | None = None
    text: str | None = None
    """What it was fitted on, where it says so."""
    tokens: int = 0
    """How much of it; 0 where it does not say."""
    context: int | None = None
    after_post_norm: bool = False
    """Whether its output is meant behind a norm that some architectures have after the MLP."""

    @property
    def num_experts(self) -> int:
        """N."""
        return len(self.tensors["gate.weight"])


@dataclass(frozen=True)
class Settings:
    """Settings from a file of another program, read with a sentence for what is missing or of another kind."""

    values: Mapping[str, Any]
    where: str

    def whole(self, name: str, default: int | None = None) -> int:
        """A positive whole number."""
        value = self.values.get(name, default)
        if type(value) is not int or value < 1:
            raise UserError(f"{self.where} has no usable {name} (a positive whole number is needed).")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise UserError(f"{self.where} has no usable {name} (a text is needed).")
        return value

    def flag(self, name: str) -> bool:
        """Whether something is said to be so; what is not said is not."""
        return self.values.get(name) is True

    def part(self, name: str) -> Settings:
        """Settings nested in these; empty where there are none."""
        value = self.values.get(name)
        return Settings(value if isinstance(value, dict) else {}, self.where)

    def tokens(self, name: str) -> int:
        """A count that may be missing: 0."""
        value = self.values.get(name)
        return value if type(value) is int and value > 0 else 0


@dataclass
class Tensors:
    """Tensors of a file by the names it gives them; each is taken once, and none may be left."""

    values: dict[str, Tensor]
    where: str
    _taken: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: Path) -> Tensors:
        """Those of a safetensors file.

        Raises:
            UserError: it is none.
        """
        try:
            return cls(load_file(path), path.name)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} cannot be read as safetensors ({error}); fetch it again.") from error

    def take(self, name: str) -> Tensor:
        """A tensor that must be there, in float32."""
        if name not in self.values:
            held = ", ".join(sorted(self.values)[:12]) or "nothing"
            raise UserError(f"{self.where} has no tensor {name}; it holds {held}.")
        self._taken.add(name)
        value = self.values[name]
        if not value.is_floating_point() or not bool(torch.isfinite(value).all()):
            raise UserError(f"The tensor {name} of {self.where} has values that are no finite numbers.")
        return value.detach().to(torch.float32).contiguous()

    def take_if_any(self, name: str) -> Tensor | None:
        """A tensor that may be there."""
        return self.take(name) if name in self.values else None

    def leave(self, *names: str) -> None:
        """Name tensors that play no part in what the layer answers."""
        self._taken.update(names)

    def end(self) -> None:
        """See that everything has been read: a tensor that we do not know may change what the layer answers.

        Raises:
            UserError: something is left.
        """
        left = sorted(self.values.keys() - self._taken)
        if left:
            raise UserError(f"{self.where} holds {', '.join(left)} too, which this version cannot interpret.")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
