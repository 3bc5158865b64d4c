"""``mxd demo``: the shipped sample, indexed when it is first looked at, then served."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from backend.commands.base import Command
from backend.commands.index import index_run
from backend.commands.label import label_run
from backend.commands.serve import announce, listen, open_browser, serve
from backend.settings import Settings
from trainer.config import INSTALLED_SAMPLE, SAMPLE, IndexConfig
from trainer.errors import NotFoundError
from trainer.heap import keep_memory_freed_in_threads

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from trainer.store import IndexRecord
    from trainer.tables import AutomaticLabelRecord

LABELS_FILE = "labels.json"
"""In the sample's folder, where there are any: run -> expert -> label."""
SESSIONS_FILE = "sessions.json"
"""In the sample's folder, where there are any: run -> name -> steering session, the first to be shown first."""
INDEX_FILE = "index.json"
"""In the sample's folder: the settings of the index, with the text's place given from there."""


class DemoCommand(Command):
    """Serve the shipped sample. The first time its contexts are indexed, which takes about a minute."""

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
        sample = self.data or writable_sample()
        if not (sample / INDEX_FILE).is_file():
            raise NotFoundError(
                f"The sample is not in {sample}; get it back with git checkout, or fit a run of your own."
            )
        if self.store is None:
            # Beside the sample, and another one for another sample: an index is worth nothing without its run.
            settings = settings.model_copy(
                update={"store": f"sqlite:///{sample.parent / f'.demo-{_stamp(sample)}.sqlite'}"}
            )
        settings = settings.model_copy(update={"data": sample})
        listen(settings.host, settings.port).close()
        prepare(settings)
        serve(settings, open_browser if self.open else announce)
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
    """Make the store know every run of a sample, and index those that have no index.

    Raises:
        UserError: the sample is damaged.
        Interrupted: somebody asked to stop.
    """
    from backend.database import open_database
    from trainer.distributed import ALONE
    from trainer.registration import register_run
    from trainer.run import Run, run_names
    from trainer.store import IndexRecord
    from trainer.tables import AutomaticLabelRecord

    values = json.loads((settings.data / INDEX_FILE).read_text("utf-8"))
    config = IndexConfig.model_validate(values)
    text = config.text.model_copy(update={"text": str(settings.data / config.text.text)})
    store = open_database(settings.store_url)
    for name in run_names(settings.data):
        run = Run.load(name, settings.data)
        register_run(run, store)
        if not _has(IndexRecord, name, store):
            index_run(run, config.model_copy(update={"text": text}), store, settings.device, ALONE)
        # The last step, so that whoever is killed before it has ended goes on from there at the next start.
        if not _has(AutomaticLabelRecord, name, store):
            _add_labels_and_sessions(name, settings.data, store)
            label_run(run, store)
    store.dispose()


def _has(table: type[IndexRecord | AutomaticLabelRecord], run: str, store: Engine) -> bool:
    from sqlalchemy import select
    from sqlalchemy.orm import Session

    from trainer.store import RunRecord

    with Session(store) as session:
        return session.scalar(select(table.run_id).join(RunRecord).where(RunRecord.name == run).limit(1)) is not None


def _add_labels_and_sessions(run: str, sample: Path, store: Engine) -> None:
    """Give a run the labels and sessions that come with the sample; once, so that a person's own are never undone, and
    what a person deletes stays away.
    """
    from backend import notes, sessions
    from backend.queries.steering import units_of
    from backend.schemas import SteeringRequest
    from trainer.store import writing

    with writing(store) as session:
        if notes.count_of(session, run) or sessions.sessions_of(session, run):
            return
        for expert, label in _read(sample / LABELS_FILE).get(run, {}).items():
            notes.set_label(session, run, int(expert), label)
        # The newest is listed first.
        for name, values in reversed(_read(sample / SESSIONS_FILE).get(run, {}).items()):
            steering = SteeringRequest.model_validate(values)
            units = sessions.kept_units(units_of(session, run, steering))
            sessions.save_session(session, run, name, steering.model_dump(mode="json"), units)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found


def _stamp(sample: Path) -> str:
    """Changes with whatever an index depends on, and with the tables that it is written in."""
    from trainer.migrations import CHAIN

    digest = hashlib.sha256(bytes([CHAIN.same_in_sqlite]))
    for pattern in (INDEX_FILE, "runs/*/run.json", "runs/*/layer.safetensors", "language-model/model.safetensors"):
        for path in sorted(sample.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
