"""The bundled demo's folder and database, which is shipped compressed and unpacked on first use."""

from __future__ import annotations

import json
import lzma
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, make_url, select, update

from mxd.backend.database.annotations import SessionRecord, json_units
from mxd.backend.database.engine import opened, reading
from mxd.backend.database.maintenance import upgrade_database
from mxd.backend.settings import DEMO_DATABASE, demo_database, demo_digest
from mxd.trainer.config.base import INSTALLED_SAMPLE, SAMPLE
from mxd.trainer.config.steering import SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.units import edit_units
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import sqlite_file_url, writing
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.utils.files import disk_errors

if TYPE_CHECKING:
    from sqlalchemy.orm import Session
    from transformers import PreTrainedTokenizerBase


def writable_demo() -> Path:
    """Return a demo folder with write access: that of a checkout, or a copy of a read-only one made on first use.
    Raises UserError if the disk is too full for the copy."""
    if SAMPLE != INSTALLED_SAMPLE and all(os.access(folder, os.W_OK) for folder in (SAMPLE, SAMPLE.parent)):
        return SAMPLE
    from platformdirs import user_data_path

    from mxd.trainer.utils.files import atomic_directory

    check_demo(SAMPLE)
    copy = user_data_path("mxd-explorer") / f"demo-{demo_digest(SAMPLE)}"
    if not copy.is_dir():
        with atomic_directory(copy) as partial:
            shutil.copytree(SAMPLE, partial, dirs_exist_ok=True)
            for path in (partial, *partial.rglob("*")):
                path.chmod(path.stat().st_mode | stat.S_IWUSR)  # those of a read-only folder are copied too
    return copy


def demo_database_url(folder: Path) -> str:
    """Return the URL of a demo's database. Raises NotFoundError if the folder has no demo."""
    check_demo(folder)
    return sqlite_file_url(demo_database(folder))


def unpacked_database(folder: Path) -> str:
    """Return the URL of a demo's database, which is unpacked on first use and upgraded if its tables are older. Raises
    NotFoundError if the folder has no demo, UserError if the database is damaged, or the disk is full."""
    url = demo_database_url(folder)
    target = Path(str(make_url(url).database))
    if not target.is_file():
        unpack_database(folder, target)
    upgrade_database(url)
    _fill_steerability(url, folder)
    _fill_session_texts(url, folder)
    return url


def unpack_database(folder: Path, target: Path) -> None:
    """Write a demo's database to ``target``, completely or not at all, with its search index. Raises UserError if the
    packed database is damaged, or the disk is full."""

    def load_tokenizers() -> dict[str, PreTrainedTokenizerBase]:
        from mxd.trainer.storage.run import Run, run_names

        import_module("mxd.trainer.analysis.indexing.build")  # which building the search index needs
        return {name: Run.load(name, folder).tokenizer for name in run_names(folder)}

    sys.stderr.write("Unpacking the database of the demo\n")
    packed = folder / DEMO_DATABASE
    with (
        disk_errors(target),
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".demo-") as temporary,
        ThreadPoolExecutor(1) as pool,
    ):
        tokenizers = pool.submit(load_tokenizers)  # takes as long as unpacking
        partial = Path(temporary) / target.name
        try:
            with lzma.open(packed) as source, partial.open("wb") as file:
                shutil.copyfileobj(source, file, 1 << 20)
        except (lzma.LZMAError, EOFError) as error:
            raise UserError(f"{packed} is damaged. Restore it with git checkout.") from error
        upgrade_database(sqlite_file_url(partial))
        tokenizer_of = tokenizers.result()
        # The search index is not shipped: it is a third of the compressed database.
        from mxd.trainer.analysis.indexing.build import index_search

        with opened(sqlite_file_url(partial)) as engine, writing(engine) as session:
            for run_id, name in session.execute(select(RunRecord.id, RunRecord.name).join(IndexRecord)).all():
                sys.stderr.write(f"Building the search index of {name}\n")
                index_search(session, run_id, tokenizer_of[name])
        partial.replace(target)


def _fill_steerability(url: str, folder: Path) -> None:
    """Fill a column that is newer than the packed database from files of the runs."""
    empty = select(RunRecord.id, RunRecord.name).where(
        select(ExpertRecord).where(ExpertRecord.run_id == RunRecord.id, ExpertRecord.steerability.is_(None)).exists()
    )
    with opened(url) as engine:
        with engine.connect() as connection:
            lacking = [
                each for each in connection.execute(empty) if (folder / "runs" / each.name / "prices.json").is_file()
            ]
        if not lacking:
            return
        # Not imported before: PyTorch takes a second, which later starts need not spend.
        from mxd.trainer.analysis.edit_price import units_of
        from mxd.trainer.analysis.effect_search import prices_of_units, saved_prices
        from mxd.trainer.storage.run import Run

        with writing(engine) as session:
            for run_id, name in lacking:
                run = Run.load(name, folder)
                if (price_N := saved_prices(run)) is None:
                    continue
                prices = prices_of_units(price_N, units_of(run, {name: run.units})).tolist()
                rows = [{"of_expert": each, "price": price} for each, price in enumerate(prices)]
                mine = (ExpertRecord.run_id == run_id, ExpertRecord.expert == bindparam("of_expert"))
                changed = update(ExpertRecord).where(*mine).values(steerability=bindparam("price"))
                session.connection().execute(changed, rows)


def _fill_session_texts(url: str, folder: Path) -> None:
    """Bring shipped sessions to their present edits, texts and prices, once: those of the packed database are older.
    They are by ``scripts/session_texts.py``."""
    file = folder / "session_texts.json"
    if not file.is_file():
        return
    texts: dict[str, dict[str, dict[str, Any]]] = json.loads(file.read_text("utf-8"))
    shipped: dict[str, dict[str, dict[str, Any]]] = json.loads((folder / "sessions.json").read_text("utf-8"))

    def lacking(session: Session) -> Iterator[tuple[SessionRecord, dict[str, Any]]]:
        for record in session.scalars(select(SessionRecord)):
            found = texts.get(record.run, {}).get(record.name)
            if found and not found["result"].keys() <= (record.result or {}).keys():
                yield record, found

    with opened(url) as engine:
        with reading(engine) as session:
            if not any(lacking(session)):
                return
        with writing(engine) as session:
            for record, found in list(lacking(session)):
                new = shipped[record.run][record.name]
                if record.result is None:
                    record.text, record.result = found["text"], found["result"]
                    record.steering = {**record.steering, **new}
                    config = SteeringConfig.model_validate({"prompt": "", "edits": new["edits"]})
                    record.units = json_units(edit_units(config, record.run, lambda _: {}, session))
                elif record.steering["edits"] == new["edits"]:
                    record.result = found["result"] | record.result


def check_demo(folder: Path) -> None:
    """Check that a folder has a demo. Raises NotFoundError if it has none."""
    if demo_digest(folder) is None:
        if folder == SAMPLE:
            raise NotFoundError("The demo is a package of its own. Run: pip install mxd-explorer-demo")
        raise NotFoundError(f"No demo in {folder}: it has no {DEMO_DATABASE}. Choose another --data.")
