"""The runs in memory: loaded when first asked for, kept until others need the room."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from backend.errors import RunNotFoundError
from backend.importing import ALONE
from backend.vocabulary import Vocabulary
from trainer.errors import NotFoundError
from trainer.files import is_held
from trainer.layers.saved import WEIGHTS_FILE
from trainer.run import LOCK_FILE, RUN_FILE, Run, runs_folder

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from backend.likeness import Likeness


class LoadedRun:
    """One run directory with what is derived from it."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """Its language model's."""
        with ALONE:
            return self.run.tokenizer

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Texts of its language model's tokens."""
        return Vocabulary(self.tokenizer)

    @cached_property
    def likeness(self) -> Likeness:
        """Its experts as directions to compare."""
        with ALONE:
            from backend.likeness import Likeness

        return Likeness(self.run)


class Library:
    """Runs of a data folder by name. A run whose files have changed is read again."""

    def __init__(self, data: Path, capacity: int) -> None:
        self.data = data
        self._capacity = capacity
        self._lock = Lock()
        self._loaded: OrderedDict[str, tuple[int, LoadedRun]] = OrderedDict()

    def run(self, name: str) -> LoadedRun:
        """The run of this name.

        Raises:
            RunNotFoundError: its folder is not in the data folder.
            UserError: it is damaged.
        """
        with self._lock:
            stamp = self.stamp(name)
            held = self._loaded.pop(name, None)
            loaded = held[1] if held and held[0] == stamp else self._load(name)
            self._loaded[name] = (stamp, loaded)
            while len(self._loaded) > self._capacity:
                self._loaded.popitem(last=False)
            return loaded

    def at_once(self, name: str) -> LoadedRun | None:
        """The run of this name if it is in memory, as its files are now; None where anything has to be waited for."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            held = self._loaded.get(name)
            if held is None or held[0] != self.stamp(name):
                return None
            self._loaded.move_to_end(name)
            return held[1]
        finally:
            self._lock.release()

    def is_fitting(self, name: str) -> bool | None:
        """Whether a process on this machine is fitting a run now; None where its folder is elsewhere."""
        folder = runs_folder(self.data) / name
        return is_held(folder / LOCK_FILE) if folder.is_dir() else None

    def _load(self, name: str) -> LoadedRun:
        try:
            return LoadedRun(Run.load(name, self.data))
        except NotFoundError as error:
            raise RunNotFoundError(
                f"The folder of run {name} is not in {runs_folder(self.data)}; put it back or name its data folder."
            ) from error

    def stamp(self, name: str) -> int:
        """Changes whenever the run is fitted further or anew."""
        folder = runs_folder(self.data) / name
        paths = [folder, folder / RUN_FILE, folder / WEIGHTS_FILE]
        return hash(tuple(path.stat().st_mtime_ns for path in paths if path.exists()))
