"""How the K of N experts are found: every gate gives the K largest of N scores, or close to them, and their places."""

from trainer.layers.gates.base import Gate
from trainer.layers.gates.build import build_gate
from trainer.layers.gates.flat import FlatGate

__all__ = ["FlatGate", "Gate", "build_gate"]
