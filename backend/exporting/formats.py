"""Which formats there are. Nothing slow is imported here: it is read to say what the program can do."""

from __future__ import annotations

from typing import Literal

ExportFormat = Literal["json", "csv", "parquet", "neuronpedia"]
