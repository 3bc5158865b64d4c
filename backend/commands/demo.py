"""``mxd demo``: the shipped sample, indexed when it is first looked at, then served."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from backend.commands.base import Command
from backend.commands.demo_rest import Beside
from backend.commands.index import index_run
from backend.commands.label import label_run
from backend.commands.serve import announce, listen, open_browser, serve
from backend.settings import Settings
from trainer.config import INSTALLED_SAMPLE, SAMPLE
from trainer.heap import keep_memory_freed_in_threads

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from backend.sample import Sample
    from trainer.run import Run


class DemoCommand(Command):
    """Serve the shipped sample. The first time a run's contexts are indexed, which takes about a minute; those of the
    other runs while the first is looked at."""

    data: Path | None = None
    """Folder of a sample; by default the shipped one, of a wheel a copy in your own data folder."""
    store: str | None = None
    """SQLAlchemy URL of the store; by default a file beside the sample."""
    host: str | None = None
    """Address to listen on (127.0.0.1: this machine only)."""
    port: Annotated[int | None, Field(ge=0, le=65_535)] = None
    """Port to listen on (8000); 0 takes a free one."""
    device: str | None = None
    """Where the language model runs: auto, cpu or cuda (auto)."""
    open: bool = False
    """Open the dashboard in a browser."""

    def run(self) -> int:
        """Prepare what is missing, then serve."""
        keep_memory_freed_in_threads()
        settings = self.settings(host=self.host, port=self.port, device=self.device)
        from backend.sample import Sample

        sample = self.data or writable_sample()
        Sample.open(sample)
        if self.store is None:
            # Beside the sample, and another one for another sample: an index is worth nothing without its run.
            settings = settings.model_copy(
                update={"store": f"sqlite:///{sample.parent / f'.demo-{_stamp(sample)}.sqlite'}"}
            )
        settings = settings.model_copy(update={"data": sample})
        listen(settings.host, settings.port).close()
        others = prepare_first(settings)
        when_ready = open_browser if self.open else announce
        with Beside(settings) as beside:
            serve(settings, beside.after(when_ready) if others else when_ready)
        return 0


def writable_sample() -> Path:
    """The sample where an index can be written beside it: that of a checkout as it lies, that of a wheel as a copy in
    the user's own data folder, made once.

    Raises:
        UserError: there is no room for the copy.
    """
    if SAMPLE != INSTALLED_SAMPLE:
        return SAMPLE
    from platformdirs import user_data_path

    from trainer.files import whole_folder

    copy = user_data_path("mxd-explorer") / f"demo-{_stamp(SAMPLE)}"
    if not copy.is_dir():
        with whole_folder(copy) as partial:
            shutil.copytree(SAMPLE, partial, dirs_exist_ok=True)
    return copy


def prepare(settings: Settings) -> None:
    """Make the store know every run of a sample and what was measured of it, and index those that have no index.

    Raises:
        UserError: the sample is damaged.
        Interrupted: somebody asked to stop.
    """
    with _entered(settings) as (sample, store):
        for run in sample.runs:
            _prepare_run(run, sample, store, settings.device)


def prepare_first(settings: Settings) -> int:
    """The same, but index the run alone that is shown first. Returns how many others there are to index.

    Raises:
        UserError: the sample is damaged.
        Interrupted: somebody asked to stop.
    """
    from backend.sample import is_ready

    with _entered(settings) as (sample, store):
        _prepare_run(sample.runs[0], sample, store, settings.device)
        return sum(not is_ready(run, store) for run in sample.runs[1:])


@contextmanager
def _entered(settings: Settings) -> Iterator[tuple[Sample, Engine]]:
    from backend.database import opened
    from backend.sample import Sample

    sample = Sample.open(settings.data)
    with opened(settings.store_url) as store:
        sample.enter(store)
        yield sample, store


def _prepare_run(run: Run, sample: Sample, store: Engine, device: str) -> None:
    from backend.sample import is_indexed, is_ready
    from trainer.distributed import ALONE

    if not is_indexed(run, store):
        index_run(run, sample.index, store, device, ALONE)
    sample.enter_influence(run, store)
    if not is_ready(run, store):
        sample.enter_written(run, store)
        label_run(run, store)


def _stamp(sample: Path) -> str:
    """Changes with whatever an index depends on, and with the tables that it is written in."""
    from backend.sample import INDEX_FILE
    from trainer.migrations import CHAIN

    digest = hashlib.sha256(bytes([CHAIN.same_in_sqlite]))
    for pattern in (INDEX_FILE, "runs/*/run.json", "runs/*/layer.safetensors", "language-model/model.safetensors"):
        for path in sorted(sample.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
