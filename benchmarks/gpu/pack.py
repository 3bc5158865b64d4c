"""Inputs of a GPU run without network, in one folder: language model, text, recipe and wheels.

The language model is a GGUF file with only the blocks up to the last trained layer, still quantised. Embeddings of
tokens that the text lacks are zeros, which compress to nothing. The text is compressed as text, which takes no more
room than its tokens would.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from mxd.trainer.config import TextConfig
from mxd.trainer.data.sequences import documents, tokenize_documents
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.sources import cache_folder
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.utils.files import atomic_write

MODEL_FILE, TEXT_FILE, RECIPE_FILE, WHEELS_FOLDER = "model.gguf.zst", "text.jsonl.zst", "recipe.json", "wheels"
LEVEL = 19
"""Compression level of zstandard."""
WHEELS = (
    "alembic",
    "annotated-types",
    "gguf",
    "Mako",
    "platformdirs",
    "prometheus_client",
    "pydantic",
    "pydantic-settings",
    "pydantic_core",
    "python-dotenv",
    "SQLAlchemy",
    "typing-inspection",
    "zstandard",
)
"""Packages that this run imports and that images with PyTorch and transformers often lack."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_5_x86_64")
REHEARSAL = Path(__file__).resolve().parents[2] / "tests" / "demo"
"""Folder with a small language model and text."""


@dataclass(frozen=True)
class Recipe:
    """Settings of the layers that are trained; everything else is the default of ``mxd train``."""

    layers: tuple[int, ...]
    num_experts: int | None = None
    """Default: parameters of a transcoder with 32 features per input value."""
    k: int = 32
    tokens: int | None = None
    """Training tokens. Default: as many as the time of the first call allows."""


@dataclass(frozen=True)
class Pack:
    """Language model, text and recipe at hand."""

    language_model: str
    """Path of a GGUF file or folder."""
    text: str
    recipe: Recipe

    @classmethod
    def open(cls, folder: Path | None) -> Pack:
        """Open a pack; without one, the language model and text of the tests."""
        if folder is None:
            return cls(str(REHEARSAL / "language-model"), str(REHEARSAL / "text.jsonl.gz"), Recipe((1, 2)))
        try:
            recipe = json.loads((folder / RECIPE_FILE).read_text("utf-8"))
        except OSError as error:
            raise UserError(f"No pack in {folder}. Write one with --pack {folder}.") from error
        recipe["layers"] = tuple(recipe["layers"])
        return cls(str(_decompressed(folder / MODEL_FILE)), str(folder / TEXT_FILE), Recipe(**recipe))


def _decompressed(path: Path) -> Path:
    """The file without its compression, in the cache folder."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        target = cache_folder().parent / "packs" / digest / path.stem
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            file.seek(0)
            partial = target.with_suffix(".partial")
            with partial.open("wb") as output:
                zstandard.ZstdDecompressor().copy_stream(file, output)
            partial.replace(target)
    return target


def write_pack(folder: Path, gguf: Path, text: str, text_bytes: int, recipe: Recipe) -> dict[str, int]:
    """Write language model, text and recipe; returns the size of each file in bytes.

    Args:
        folder: target; created if missing.
        gguf: GGUF file of the whole language model.
        text: dataset to train on, in any supported format.
        text_bytes: most bytes of the compressed text.
        recipe: layers to train.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config = TextConfig(dataset=text)
    _write_text(folder / TEXT_FILE, config, text_bytes)
    tokenizer = load_tokenizer(str(gguf))
    used_V = np.zeros(len(tokenizer), dtype=bool)
    used_V[tokenizer.all_special_ids] = True
    for ids in tokenize_documents(TextConfig(dataset=str(folder / TEXT_FILE)), tokenizer):
        used_V[ids] = True
    cut = folder / "model.gguf"
    write_cut(gguf, cut, max(recipe.layers) + 1, used_V)
    with cut.open("rb") as source, (folder / MODEL_FILE).open("wb") as target:
        zstandard.ZstdCompressor(level=LEVEL, threads=-1).copy_stream(source, target)
    cut.unlink()
    atomic_write(folder / RECIPE_FILE, json.dumps(asdict(recipe)) + "\n")
    return sizes(folder)


def sizes(folder: Path) -> dict[str, int]:
    """Size of every file in a folder, in bytes."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def _write_text(target: Path, config: TextConfig, most_bytes: int) -> None:
    """Write documents in a random order until the file has its size."""
    with target.open("wb") as file, zstandard.ZstdCompressor(level=LEVEL).stream_writer(file) as stream:
        lines = io.TextIOWrapper(stream, "utf-8", write_through=True)
        for document in documents(config, "shuffled", 0):
            lines.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
            if file.tell() >= most_bytes:
                break
        lines.detach()


def write_cut(source: Path, target: Path, blocks: int, used_V: npt.NDArray[np.bool_]) -> None:
    """Copy a GGUF file with only its first ``blocks`` blocks, and zeros as the embeddings of unused tokens."""
    from gguf import GGUFReader, GGUFValueType, GGUFWriter

    reader = GGUFReader(source)
    architecture = str(reader.fields["general.architecture"].contents())
    writer = GGUFWriter(target, architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        value = blocks if name == f"{architecture}.block_count" else field.contents()
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(name, value, field.types[0], sub_type=inner)
    for name, data, kind in _kept_tensors(reader, blocks, used_V):
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _kept_tensors(reader: Any, blocks: int, used_V: npt.NDArray[np.bool_]) -> Iterator[tuple[str, Any, Any]]:
    for tensor in reader.tensors:
        part, _, rest = tensor.name.partition(".")
        if part == "blk" and int(rest.partition(".")[0]) >= blocks:
            continue
        data = tensor.data
        if part == "token_embd":
            data = np.where(used_V[: len(data), None], data, np.zeros_like(data))
        yield tensor.name, data, tensor.tensor_type


def download_wheels(folder: Path, versions: Mapping[str, str], python: str) -> None:
    """Download the wheels of ``WHEELS`` with pip, at the tested versions, for Linux on x86-64.

    Raises:
        UserError: pip failed.
    """
    target = folder / WHEELS_FOLDER
    shutil.rmtree(target, ignore_errors=True)
    words: list[str] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    words += ["--python-version", python, "--implementation", "cp", "--dest", str(target)]
    words += [word for platform in PLATFORMS for word in ("--platform", platform)]
    words += [f"{name}=={versions[name.lower()]}" for name in WHEELS]
    if subprocess.run(words, check=False).returncode:
        raise UserError("pip could not download the wheels; its message is above. Omit --python to pack without them.")


def pinned_versions(constraints: Path) -> dict[str, str]:
    """Package name in lower case -> version, from a constraints file."""
    lines: Sequence[str] = constraints.read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name.strip().lower(): version.split(";")[0].strip() for name, version in pairs}
