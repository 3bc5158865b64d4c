"""Check of a tokenizer's files before they are loaded, in a process that can be killed.

Files that come with a model or a bundle may be nested deeply, hang while they are parsed, or make a text grow without
bound. The result is kept by the hash of the files, so that each tokenizer is checked once per user.
"""

import hashlib
import json
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.sources import user_cache
from mxd.trainer.language_model.untrusted import tokenizer_probe

CHECK_VERSION = 1
"""Part of the name of a kept result; increase it when the check changes."""
LARGEST_FILE = 64 << 20
FILES = (
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "vocab*",
    "merges.txt",
    "*.model",
    "config.json",
)


def check_tokenizer_files(folder: Path) -> None:
    """Check that the tokenizer in a folder can be loaded and used within bounds of time and memory. Raises UserError if
    a file is too large, or the tokenizer hangs, crashes, or makes texts grow."""
    files = [path for path in sorted({path for pattern in FILES for path in folder.glob(pattern)}) if path.is_file()]
    for path in files:
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{path} is too large for a tokenizer: {path.stat().st_size:,} bytes.")
    stamps = tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    problem = _problem(stamps)
    if problem:
        raise UserError(f"The tokenizer of {folder} cannot be loaded ({problem}). Copy the folder again.")


@lru_cache(256)
def _problem(stamps: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, size, _ in stamps:
        digest.update(f"{Path(path).name} {size}\n".encode())
        digest.update(Path(path).read_bytes())
    marker = user_cache() / "tokenizers" / f"{digest.hexdigest()}-{CHECK_VERSION}"
    if marker.is_file():
        return ""
    problem = _run([path for path, *_ in stamps])
    if not problem:
        with suppress(OSError):  # a cache that cannot be written costs time only
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
    return problem


def _run(paths: list[str]) -> str:
    """Load and use the tokenizer in another process, which imports little and starts quickly."""
    command = [sys.executable, "-I", tokenizer_probe.__file__]
    try:
        done = subprocess.run(
            command, input=json.dumps(paths).encode(), capture_output=True, timeout=tokenizer_probe.LIMIT_SECONDS * 6
        )
    except subprocess.TimeoutExpired:
        return "it hangs"
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace").strip().splitlines()[-1:][0] if done.stdout.strip() else ""
    return f"it takes more than {tokenizer_probe.LIMIT_SECONDS} seconds or too much memory, or crashes"
