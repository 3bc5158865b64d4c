"""Layers and steering vectors in the file formats of other programs."""

from typing import Literal

LayerFormat = Literal["saelens", "sparsify", "circuit-tracer"]
VectorFormat = Literal["gguf", "vectors"]
