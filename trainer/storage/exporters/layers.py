"""Export of trained layers to a new folder, in the format of another library."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mxd.trainer.errors import UserError
from mxd.trainer.storage.exporters import LayerFormat
from mxd.trainer.storage.exporters.circuit_tracer import write_circuit_tracer
from mxd.trainer.storage.exporters.saelens import write_saelens
from mxd.trainer.storage.exporters.sparsify import write_sparsify
from mxd.trainer.storage.portable import check_empty_folder
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import atomic_directory


def export_layers(runs: Sequence[Run], format: LayerFormat, folder: Path) -> None:
    """Write the layers of some runs. With saelens, several runs get a folder each.

    Raises:
        UserError: the folder is not empty, or the format has no such layers; no files are left.
    """
    check_empty_folder(folder)
    if len({run.config.layer for run in runs}) < len(runs):
        raise UserError("These runs are of the same layer. Export them one by one.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder) as partial:
        if format == "circuit-tracer":
            write_circuit_tracer(runs, partial)
            return
        for run in runs:
            if format == "sparsify":
                write_sparsify(run, partial)
            else:
                target = partial if len(runs) == 1 else partial / f"layer_{run.config.layer}"
                target.mkdir(exist_ok=True)
                write_saelens(run, target)
