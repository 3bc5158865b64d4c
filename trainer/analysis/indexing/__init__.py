"""Index a run: statistics and top examples of every expert, collected in one pass over a text."""

from mxd.trainer.analysis.indexing.build import IndexResult, build_index

__all__ = ["IndexResult", "build_index"]
