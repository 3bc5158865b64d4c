"""Cache of the runs in memory: loaded on first use, evicted least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import psutil

from mxd.backend.errors import RunNotFoundError, UnusableRunError
from mxd.backend.inference.lazy_imports import IMPORT_LOCK
from mxd.backend.inference.token_text import Vocabulary
from mxd.backend.locks import KeyedLocks
from mxd.trainer.config.layer import WEIGHTS_FILE
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.run import LOCK_FILE, RUN_FILE, Run, runs_folder
from mxd.trainer.utils.files import is_locked

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mxd.backend.inference.expert_similarity import ExpertSimilarity


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
        """Tokenizer of the run's language model."""
        with IMPORT_LOCK:
            return self.run.tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Texts of the tokenizer's tokens."""
        return Vocabulary(self.tokenizer)

    @cached_property
    def similarity(self) -> ExpertSimilarity:
        """Similarity of the run's experts."""
        with IMPORT_LOCK:
            from mxd.backend.inference.expert_similarity import ExpertSimilarity

        return ExpertSimilarity(self.run)


class RunLoader:
    """Loads runs of a data folder by name. A run whose files have changed is loaded again."""

    def __init__(self, data: Path, capacity: int) -> None:
        self.data = data
        self._capacity = capacity
        self._lock = Lock()
        self._turns = KeyedLocks()
        self._loaded: OrderedDict[str, tuple[int, LoadedRun]] = OrderedDict()

    def run(self, name: str) -> LoadedRun:
        """The run of this name.

        Raises:
            RunNotFoundError: the data folder has no folder of this run.
            UnusableRunError: the run is damaged.
        """
        with self._turns.of(name):  # loading one run delays no other
            fingerprint = self.fingerprint(name)
            with self._lock:
                cached = self._loaded.get(name)
            loaded = cached[1] if cached and cached[0] == fingerprint else self._load(name)
            with self._lock:
                self._loaded[name] = (fingerprint, loaded)
                self._loaded.move_to_end(name)
                while len(self._loaded) > self._capacity or (len(self._loaded) > 1 and self._fills_memory()):
                    self._loaded.popitem(last=False)
            return loaded

    def _fills_memory(self) -> bool:
        """True if the weights exceed their share of the memory of the device on which they may all be."""
        size = sum(loaded.weight_bytes for _, loaded in self._loaded.values())
        if size <= SMALL_BYTES:  # without importing torch
            return False
        from mxd.trainer.utils.devices import accelerator, device_memory

        device = accelerator()
        memory = None if device is None else device_memory(device)
        return size > MEMORY_SHARE * (psutil.virtual_memory().total if memory is None else memory.total)

    def get_cached(self, name: str) -> LoadedRun | None:
        """The run of this name if it is in memory and unchanged; None if getting it would block."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            cached = self._loaded.get(name)
            if cached is None or cached[0] != self.fingerprint(name):
                return None
            self._loaded.move_to_end(name)
            return cached[1]
        finally:
            self._lock.release()

    def is_training(self, name: str) -> bool | None:
        """True if a process on this machine is training the run; None if the data folder has no folder of this run."""
        folder = runs_folder(self.data) / name
        return is_locked(folder / LOCK_FILE) if folder.is_dir() else None

    def fingerprint(self, name: str) -> int:
        """A value that changes whenever the run's files do."""
        folder = runs_folder(self.data) / name
        paths = [folder, folder / RUN_FILE, folder / WEIGHTS_FILE]
        return hash(tuple(map(_modified_ns, paths)))

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


def _modified_ns(path: Path) -> int | None:
    """Time of the last change; None if there is no such file, which may be removed at any time."""
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return None
