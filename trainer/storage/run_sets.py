"""Checks of runs that are used jointly, names of the runs that fine-tuning creates, and what a measurement rests on."""

import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mxd.trainer.config.base import RunName
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.config.training import PLACE, TextConfig
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.tensor_files import parts_of
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.files import explained

_NAMES = TypeAdapter[str](RunName)


def common_language_model(runs: Iterable[Run]) -> str:
    """Return the language model of some runs. Raises UserError if they belong to different ones."""
    sources = {run.language_model_source for run in runs}
    if len(sources) > 1:
        raise UserError(
            f"The runs belong to different language models: {', '.join(sorted(sources))}. Choose runs of one."
        )
    return sources.pop()


def check_compatible_runs(runs: Sequence[Run]) -> None:
    """Check that runs can be used jointly. Raises UserError if they belong to different language models, or two replace
    the same layer."""
    common_language_model(runs)
    check_disjoint_layers(runs)


def check_disjoint_layers(runs: Sequence[Run]) -> None:
    """Check that no two runs replace the same layer. Raises UserError if two do."""
    layer, times = Counter(run.config.layer for run in runs).most_common(1)[0]
    names = [run.name for run in runs if run.config.layer == layer]
    if len(set(names)) < times:
        raise UserError("A run is listed twice.")
    if times > 1:
        raise UserError(f"{' and '.join(names)} both replace layer {layer}. Choose one run per layer.")


def names_of(runs: Sequence[Run], pattern: str) -> list[str]:
    """Return the names of the new runs. Raises UserError if a name is invalid, or two are equal."""
    names = [pattern.replace(PLACE, run.name) for run in runs]
    for name in names:
        message = f"Invalid run name: {name[:120]!r}. Use up to 100 letters, digits, '.', '_' and '-'."
        with explained(message, ValidationError):
            _NAMES.validate_python(name)
    twice, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{times} runs would be named '{twice}'. Use {PLACE} in --name as a placeholder for the parent's name."
        )
    return names


_BYTES = 2**22


def weights_digest(runs: Iterable[Run]) -> str:
    digest = blake2b(digest_size=16)
    for run in runs:
        for path in parts_of(run.weights_folder / WEIGHTS_FILE):
            with path.open("rb") as file:
                while part := file.read(_BYTES):
                    digest.update(part)
    return digest.hexdigest()


def check_fits(language_model: LanguageModel, run: Run) -> None:
    """Check that a layer can replace its MLP. Raises UserError if the widths differ, or the layer is an autoencoder."""
    if run.layer.reads == "mlp-output":
        raise UserError(
            f"Run '{run.name}' is an {run.config.method}, which reads the MLP's output. Routing and steering are not "
            "supported; evaluate, index or probe it instead."
        )
    shape, layer = language_model.architecture.mlp_shape(run.config.layer), run.layer.config
    if (shape.input_width, shape.output_width) != (layer.input_width, layer.output_width):
        raise UserError(
            f"Run '{run.name}' has widths {layer.input_width} -> {layer.output_width}, but layer {run.config.layer} of "
            f"{language_model.source} has {shape.input_width} -> {shape.output_width}. Load the language model that "
            "the run was trained on."
        )


PACKAGES = ("torch", "transformers")
UNRECORDED = {"date": None, "code": None, "packages": None}
"""Stands for the measurement's own values if it was stored without them."""


def provenance(runs: Iterable[Run], texts: Iterable[TextConfig] = ()) -> dict[str, Any]:
    """Describe a measurement that is made now: digest of each run's weights, fingerprint of each text, and ``code``.
    Raises UserError if a text cannot be read."""
    digests = {text.dataset: fingerprint(text) for text in texts}
    names = {dataset: Path(dataset).name for dataset in digests}
    counts = Counter(names.values())
    return {
        "runs": {run.name: weights_digest([run]) for run in runs},
        # Without their folder, unless two files have the same name.
        "texts": {
            names[dataset] if counts[names[dataset]] == 1 else dataset: digest for dataset, digest in digests.items()
        },
        **code(),
    }


def code() -> dict[str, Any]:
    """Date of today, commit or version of the program, and versions of the packages that change numbers."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "code": code_version(),
        "packages": {package: version(package) for package in PACKAGES},
    }


def code_version() -> str:
    """Commit of the program's Git checkout, with ``-dirty`` if files differ from it; otherwise its version."""
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            pass  # no git, or a checkout of another user
    return version("mxd-explorer")
