"""Runs, language models and datasets in folders and on a hub: there and back, entered elsewhere, removed."""

import json
import time
from pathlib import Path

import pytest
import torch
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.trainer.config import TextConfig
from mxd.trainer.data.documents import documents
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import METRICS_FILE, Run
from mxd.trainer.storage.run_records import adopt, metrics_of, register_run, remove_run
from mxd.trainer.utils.files import exclusive_lock
from tests.helpers.runs import World, saved_language_model, tiny_language_model
from tests.helpers.servers.hub import fake_hub, using_hub

X_TI = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))


def test_an_exported_run_imports_unchanged(world: World, run: Run, tmp_path: Path) -> None:
    run.write_units({3: 1.5})
    folder = run.save_pretrained(tmp_path / "shared", figures={"loss added": "0.01 nats"})
    assert not [path for path in folder.rglob("*") if path.suffix in (".pt", ".bin", ".pkl", ".py")]
    again = Run.from_pretrained(folder)
    assert torch.equal(again.layer(X_TI).output_TO, run.layer(X_TI).output_TO)
    assert (again.units, len(again.tokenizer)) == ({3: 1.5}, len(run.tokenizer))
    with pytest.raises(UserError, match="not empty"):
        run.save_pretrained(folder)
    adopted = adopt(again, "theirs", "elsewhere/tiny", world.data, world.database)
    assert (adopted.name, adopted.config.language_model) == ("theirs", "elsewhere/tiny")
    assert metrics_of(world.database, 2) == metrics_of(world.database, 1) != []
    with pytest.raises(UserError, match="Choose another --name"):
        adopt(again, "theirs", None, world.data, world.database)


def test_exports_contain_no_local_paths(run: Run, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "shared")
    texts = "".join(path.read_text() for path in folder.glob("*") if path.suffix in (".json", ".md"))
    assert str(tmp_path) not in texts
    assert Run.from_pretrained(folder).config.text.dataset == "text.jsonl"


def test_the_model_card_describes_the_run(run: Run, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "shared", "some-one/tiny", {"loss added": "0.01 | nats"})
    card = (folder / "README.md").read_text()
    for said in ("base_model: some-one/tiny", "| layer | 1 |", "| method | mxd |", "| experts N | 40 |"):
        assert said in card
    for said in ("| active K | 4 |", "| training tokens | 1,536 |", "0.01 \\| nats", "mxd.load("):
        assert said in card
    local = run.save_pretrained(tmp_path / "other")
    assert json.loads((local / "run.json").read_text())["language_model"] == "tiny-llama"


def test_folders_without_a_run_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="No such folder"):
        Run.from_pretrained(tmp_path / "none")
    with pytest.raises(NotFoundError, match="Unknown run"):
        Run.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="Cannot fetch"):
        Run.from_pretrained("some-one/none")


def test_a_run_is_uploaded_and_downloaded(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    push, data = ["push", "small", "some-one/small"], ["--data", str(tmp_path / "data")]
    with fake_hub(keeps=tmp_path / "hub") as hub:
        with using_hub(hub.url, tmp_path / "home", token="hf_a"):
            assert mxd([*push, *data]) == 0
        assert f"Uploaded small to {hub.url}/some-one/small/commit/" in capsys.readouterr().out
        assert hub.tokens == ["Bearer hf_a"]
        card = (tmp_path / "hub" / "some-one" / "small" / "README.md").read_text()
        assert "normalised MSE after training (1: predicting zero)" in card
        assert "| mixing | a C minus its median over the training tokens" in card
        with using_hub(hub.url, tmp_path / "home"):
            assert mxd(["pull", "some-one/small", "--name", "back", *data]) == 0
            assert mxd([*push, *data]) == 2
        assert "hf auth login" in capsys.readouterr().err
    back = Run.load("back", tmp_path / "data")
    assert torch.equal(back.layer(X_TI).output_TO, run.layer(X_TI).output_TO)


def columns(database: Engine, run: Run) -> dict[str, object]:
    with Session(database) as session:
        record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
        left_out = {"id", "started_at", "updated_at"}
        return {c.name: getattr(record, c.name) for c in RunRecord.__table__.columns if c.name not in left_out}


def test_a_run_registered_in_another_database_has_the_same_record(world: World, run: Run, tmp_path: Path) -> None:
    other = open_trainer_database(sqlite_url(tmp_path / "elsewhere"))
    for _ in range(2):  # the second time it is left as it is
        register_run(run, other)
    assert columns(other, run) == columns(world.database, run)
    assert metrics_of(other, 1) == metrics_of(world.database, 1)
    other.dispose()


def test_missing_and_damaged_metrics_are_ignored(run: Run, tmp_path: Path) -> None:
    other = open_trainer_database(sqlite_url(tmp_path / "elsewhere"))
    (run.folder / METRICS_FILE).write_text('[{"step": 1}]')
    with pytest.raises(UserError, match="Invalid metrics"):
        register_run(run, other)
    (run.folder / METRICS_FILE).unlink()
    register_run(run, other)
    assert metrics_of(other, 1) == []
    other.dispose()


def test_removing_a_run_deletes_its_files_and_rows(world: World, run: Run) -> None:
    world.index(run, tokens=160)
    world.train("other")
    remove_run("small", world.data, world.database)
    assert not run.folder.exists()
    assert [record.name for record in world.rows(RunRecord)] == ["other"]
    for table in (ExpertRecord, ExampleRecord, SequenceRecord, IndexRecord):
        assert world.rows(table) == []
    with Session(world.database) as session:
        assert session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name LIKE 'search_%'")) == 0
    with pytest.raises(NotFoundError, match="Unknown run 'small'"):
        remove_run("small", world.data, world.database)


def test_a_run_in_training_is_not_removed(world: World, run: Run) -> None:
    with exclusive_lock(run.lock, "held"), pytest.raises(UserError, match="being trained"):
        remove_run("small", world.data, world.database)
    assert run.folder.exists()


TEXTS = [f"Document number {number}." for number in range(30)]
NOBODY = "http://127.0.0.1:9"
"""Address without a server."""


def weights_sum(language_model: LanguageModel) -> float:
    return float(sum(parameter.double().sum() for parameter in language_model.module.parameters()))


def test_a_model_is_downloaded_and_then_cached(tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "folder")
    expected = pytest.approx(weights_sum(tiny_language_model()))
    with fake_hub(models={"some-one/tiny": folder}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert weights_sum(LanguageModel.load("some-one/tiny", "cpu")) == expected
        assert any("model.safetensors" in asked for asked in hub.asked)
        with pytest.raises(UserError, match="some-one/other cannot be loaded"):
            LanguageModel.load("some-one/other", "cpu")
    # Without the Hub, cached models load, and others give an error quickly.
    started = time.monotonic()
    with using_hub(NOBODY, tmp_path / "home"):
        assert weights_sum(LanguageModel.load("some-one/tiny", "cpu")) == expected
        with pytest.raises(UserError, match=r"The language model some-one/other .* does not answer"):
            LanguageModel.load("some-one/other", "cpu")
    assert time.monotonic() - started < 60


def test_a_dataset_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    with fake_hub(datasets={"some-one/corpus": folder}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert list(documents(TextConfig(dataset="some-one/corpus"))) == TEXTS
        with pytest.raises(UserError, match="Cannot read the dataset 'some-one/other' from the Hub"):
            list(documents(TextConfig(dataset="some-one/other")))


def test_an_unreachable_hub_is_reported_quickly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    with using_hub(NOBODY, tmp_path), pytest.raises(UserError, match=r"the dataset 'some-one/tiny'.* does not answer"):
        list(documents(TextConfig(dataset="some-one/tiny")))
    assert time.monotonic() - started < 60
    assert capfd.readouterr() == ("", "")
