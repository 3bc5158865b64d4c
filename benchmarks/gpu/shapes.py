"""Shapes of the paper's layers, and small ones with the same irregularities for a rehearsal."""

from __future__ import annotations

from dataclasses import dataclass

from mxd.trainer.config.layer import Encoder, LayerConfig

TOKENS = 4096
"""Tokens of a batch in the paper."""
TINY_TOKENS = 5


@dataclass(frozen=True)
class PaperShape:
    """A layer that replaces an MLP of a language model."""

    name: str
    width: int
    hidden_width: int
    num_experts: int
    encoder: Encoder
    k: int = 32
    tokens: int = TOKENS

    def config(self) -> LayerConfig:
        """Config of the MxD."""
        return LayerConfig(
            input_width=self.width,
            hidden_width=self.hidden_width,
            output_width=self.width,
            num_experts=self.num_experts,
            k=self.k,
            activation="silu" if self.encoder == "glu" else "gelu",
            encoder=self.encoder,
            mixing="centred",
        )


PAPER_SHAPES = (
    PaperShape("gpt2 layer 8", 768, 3072, 21_490, "mlp"),
    PaperShape("gpt2 layer 8, K 64", 768, 3072, 21_490, "mlp", k=64),
    PaperShape("pythia-410m layer 15", 1024, 4096, 28_658, "mlp"),
    PaperShape("pythia-1.4b layer 12", 2048, 8192, 57_330, "mlp"),
    PaperShape("llama-3.2-3b layer 12", 3072, 8192, 86_015, "glu"),
)

TINY_SHAPES = (
    PaperShape("tiny MLP", 36, 64, 41, "mlp", k=4, tokens=TINY_TOKENS),
    PaperShape("tiny GLU", 24, 40, 23, "glu", k=3, tokens=TINY_TOKENS),
)


def shapes(tiny: bool) -> tuple[PaperShape, ...]:
    """The paper's shapes, or small ones."""
    return TINY_SHAPES if tiny else PAPER_SHAPES
