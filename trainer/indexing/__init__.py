"""The index: statistics and contexts of every expert, from one pass over text into the store."""

from trainer.indexing.build import IndexResult, build_index

__all__ = ["IndexResult", "build_index"]
