"""The runs in memory, loaded on first use, with the texts of their tokens.

PyTorch and transformers take seconds to import, and browsing does not need them. Only one thread may import them at a
time. Parts of these packages import each other, so two threads that start at different modules would see each other's
partly initialised modules.
"""

from __future__ import annotations

import gc
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from importlib import import_module
from itertools import islice, takewhile
from pathlib import Path
from threading import Event, RLock
from typing import TYPE_CHECKING

import psutil

from mxd.backend.caches import StampedCache
from mxd.backend.errors import RunNotFoundError, UnusableRunError
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.tokenizer import decode_each, token_bytes, token_texts
from mxd.trainer.storage.run import LOCK_FILE, RUN_FILE, Run, runs_folder
from mxd.trainer.utils.files import is_locked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.backend.inference.similarity import ExpertSimilarity

IMPORT_LOCK = RLock()
"""Lock that a thread holds while it imports any of these packages."""
COMPUTE_MODULES = (
    "torch",
    "transformers",
    "mxd.trainer.inference.generation",
    "mxd.trainer.inference.routing",
    "mxd.trainer.analysis.effects",
    "mxd.trainer.inference.strength_sweep",
)
"""Modules that the first routing, prediction or steering needs."""


def import_compute_modules(stop: Event | None = None) -> None:
    """Import ``COMPUTE_MODULES``, or wait until another thread has; end early once ``stop`` is set."""
    for module in COMPUTE_MODULES:
        if stop is None or not stop.is_set():
            with IMPORT_LOCK:
                import_module(module)


def preload_compute_modules(after_seconds: float, stop: Event) -> None:
    """Import ``COMPUTE_MODULES`` after a delay, unless ``stop`` is set before. Freezes the imported objects for the
    garbage collector. A full collection would take half a second otherwise, during which no request is answered."""
    if not stop.wait(after_seconds):
        import_compute_modules(stop)
        gc.freeze()


MIN_PREFIX_LENGTH = 3
"""Shorter searches must match a token exactly; a single letter would be a prefix of half of the vocabulary."""


def fold(text: str) -> str:
    """Normalise a text for searches: composed letters, no case, no surrounding spaces, neither real nor drawn."""
    return unicodedata.normalize("NFC", text.replace("␣", " ").strip().casefold())


class Vocabulary:
    """Texts of tokens, in sequences and alone, and tokens by their text."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._names: dict[int, str] = {}

    @cached_property
    def _bytes(self) -> list[bytes]:
        """Bytes of each token; an empty list if the text of a token depends on the previous one."""
        return token_bytes(self._tokenizer) or []

    @cached_property
    def _texts(self) -> list[str | None]:
        """Text of each token; None for parts of characters."""

        def decode(piece: bytes) -> str | None:
            try:
                return piece.decode()
            except UnicodeDecodeError:
                return None

        return list(map(decode, self._bytes))

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Texts of a sequence of tokens; empty for a token whose character continues in the next one."""
        if not self._texts:
            return tuple(token_texts(self._tokenizer, ids))
        size = len(self._texts)
        texts = [self._texts[token] if token < size else None for token in ids]
        parts = [index for index, text in enumerate(texts) if text is None]
        stop = 0
        for start in parts:
            if start < stop:
                continue
            # Decode parts of characters with the next complete token, before which unfinished characters are written.
            stop = next((index for index in range(start, len(ids)) if texts[index] is not None), len(ids) - 1) + 1
            part = ids[start:stop]
            is_known = max(part) < len(self._bytes)  # other ids have no token
            texts[start:stop] = (
                decode_each(self._bytes[token] for token in part) if is_known else token_texts(self._tokenizer, part)
            )
        return tuple(map(str, texts))

    def name(self, token: int) -> str:
        """Text of a token inside a text; parts of characters are written as bytes, for example ``<0xF0><0x9F>``."""
        if token in self._names:
            return self._names[token]
        name = self.texts([*self._before, token])[-1]
        if not name or "\N{REPLACEMENT CHARACTER}" in name:
            if token < len(self._bytes) and self._bytes[token]:
                # Bytes that are no UTF-8 are written as SentencePiece names them, as <0xF0><0x9F>. 0xNN is U+DCNN.
                escaped = self._bytes[token].decode("utf-8", "surrogateescape")
                name = "".join(
                    f"<0x{ord(char) - 0xDC00:02X}>" if "\udc80" <= char <= "\udcff" else char for char in escaped
                )
            else:
                name = str(self._tokenizer.convert_ids_to_tokens(token) or f"#{token}")
        self._names[token] = name
        return name

    def names(self, tokens: Iterable[int]) -> list[str]:
        cache = self._names
        return [cache.get(token) or self.name(token) for token in tokens]

    @cached_property
    def _before(self) -> list[int]:
        """Tokens before one that is named, if the first of a text would lose its leading space."""
        return [] if self._texts else self._tokenizer("a", add_special_tokens=False)["input_ids"]

    @cached_property
    def _tokens_by_text(self) -> dict[str, list[int]]:
        tokens: dict[str, list[int]] = {}
        for token in sorted(set(self._tokenizer.get_vocab().values())):  # ids may have gaps
            tokens.setdefault(fold(self.name(token)), []).append(token)
        return tokens

    @cached_property
    def _sorted_texts(self) -> list[str]:
        return sorted(self._tokens_by_text)

    def exact_matches(self, text: str) -> list[int]:
        """Tokens whose text is ``text``, ignoring case and surrounding spaces."""
        return list(self._tokens_by_text.get(fold(text), []))

    def prefix_matches(self, text: str) -> list[int]:
        """Tokens whose text is ``text`` or, from three letters on, starts with it; exact matches first."""
        query = fold(text)
        if not query:
            return []
        exact = self._tokens_by_text.get(query, [])
        if len(query) < MIN_PREFIX_LENGTH:
            return list(exact)
        first = bisect_right(self._sorted_texts, query)
        longer = takewhile(lambda other: other.startswith(query), islice(self._sorted_texts, first, None))
        return [*exact, *(token for other in longer for token in self._tokens_by_text[other])]


MEMORY_SHARE = 0.25
"""Largest share of a device's memory for the weights of the runs in memory; the rest is for language models."""
SMALL_BYTES = 1 << 30
"""Weights that fit on every device."""


class LoadedRun:
    """A run with objects that are derived from its files on first use."""

    def __init__(self, run: Run) -> None:
        self.run = run
        weights = run.folder / WEIGHTS_FILE
        self.weight_bytes = weights.stat().st_size if weights.is_file() else 0

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        with IMPORT_LOCK:
            return self.run.tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer)

    @cached_property
    def similarity(self) -> ExpertSimilarity:
        with IMPORT_LOCK:
            from mxd.backend.inference.similarity import ExpertSimilarity

        return ExpertSimilarity(self.run)


def _fills_memory(loaded: Iterable[LoadedRun]) -> bool:
    """Return whether weights exceed their share of the memory of the device on which they may all be."""
    size = sum(run.weight_bytes for run in loaded)
    if size <= SMALL_BYTES:  # without importing torch
        return False
    from mxd.trainer.utils.devices import accelerator, device_memory

    device = accelerator()
    memory = None if device is None else device_memory(device)
    return size > MEMORY_SHARE * (psutil.virtual_memory().total if memory is None else memory.total)


class RunLoader:
    """Loads runs of a data folder by name. A run whose files have changed is loaded again."""

    def __init__(self, data: Path, capacity: int) -> None:
        self.data = data
        self._loaded = StampedCache[LoadedRun](capacity, _fills_memory)

    def run(self, name: str) -> LoadedRun:
        """The run of this name."""
        return self._loaded.get(name, self.fingerprint(name), lambda: self._load(name))

    def is_training(self, name: str) -> bool | None:
        """True if a process on this machine is training the run; None if the data folder has no folder of this run."""
        folder = runs_folder(self.data) / name
        return is_locked(folder / LOCK_FILE) if folder.is_dir() else None

    def fingerprint(self, name: str) -> int:
        """A value that changes whenever the run's files do."""
        folder = runs_folder(self.data) / name
        changed: list[int | None] = []
        for path in (folder, folder / RUN_FILE, folder / WEIGHTS_FILE):
            try:
                changed.append(path.stat().st_mtime_ns)
            except OSError:  # files may be removed at any time
                changed.append(None)
        return hash(tuple(changed))

    def _load(self, name: str) -> LoadedRun:
        try:
            return LoadedRun(Run.load(runs_folder(self.data) / name))  # not by name, which also means other folders
        except NotFoundError as error:
            raise RunNotFoundError(
                f"The folder of run '{name}' is missing from {runs_folder(self.data)}. Restore it, or start the server "
                "with the right data folder."
            ) from error
        except UserError as error:  # the server's files, not the request
            raise UnusableRunError(str(error)) from error
