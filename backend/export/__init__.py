"""Experts and examples of a run as files for other programs."""

from typing import Literal

TableFormat = Literal["json", "csv", "parquet", "neuronpedia", "site"]
