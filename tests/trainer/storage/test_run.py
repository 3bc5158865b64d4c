"""Runs in folders and on a hub: there and back, removed; spoiled and foreign ones are read or refused, never run."""

import json
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from mxd.backend.cli.main import run as mxd
from mxd.trainer.config.training import TextConfig
from mxd.trainer.data.sequences import documents
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.loading import load_module
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.layers.variants import load_layer
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import IN_MEMORY, open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import ExampleRecord, IndexRecord, RunRecord, SequenceRecord
from mxd.trainer.storage.run import METRICS_FILE, Run
from mxd.trainer.storage.run_records import adopt, metrics_of, register_run, remove_run
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.utils.files import exclusive_lock
from tests.helpers.fuzzing import Hostile, damaged, tried
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


def test_the_model_card_describes_the_run_and_no_file_has_local_paths(run: Run, tmp_path: Path) -> None:
    folder = run.save_pretrained(tmp_path / "shared", "some-one/tiny", {"loss added": "0.01 | nats"})
    card = (folder / "README.md").read_text()
    for said in ("base_model: some-one/tiny", "| layer | 1 |", "| method | mxd |", "| experts N | 40 |"):
        assert said in card
    for said in ("| active K | 4 |", "| training tokens | 1,536 |", "0.01 \\| nats", "mxd.load("):
        assert said in card
    local = run.save_pretrained(tmp_path / "other")
    assert Run.from_pretrained(local).config.language_model == "tiny-llama"
    assert Run.from_pretrained(local).config.text.dataset == "text.jsonl"
    for path in (*folder.glob("*"), *local.glob("*")):
        assert path.suffix not in (".json", ".md") or str(tmp_path) not in path.read_text()


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


def test_removing_a_run_that_is_not_in_training_deletes_its_files_and_rows(world: World, run: Run) -> None:
    world.index(run, tokens=160)
    world.train("other")
    with exclusive_lock(run.lock, "held"), pytest.raises(UserError, match="being trained"):
        remove_run("small", world.data, world.database)
    assert run.folder.exists() and len(world.rows(IndexRecord)) == 1
    remove_run("small", world.data, world.database)
    assert not run.folder.exists()
    assert [record.name for record in world.rows(RunRecord)] == ["other"]
    for table in (ExpertRecord, ExampleRecord, SequenceRecord, IndexRecord):
        assert world.rows(table) == []
    with Session(world.database) as session:
        assert session.scalar(text("SELECT count(*) FROM sqlite_master WHERE name LIKE 'search_%'")) == 0
    with pytest.raises(NotFoundError, match="Unknown run 'small'"):
        remove_run("small", world.data, world.database)


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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
METRIC = {"step": 1, "tokens": 64, "normalized_mse": 0.5, "dead_share": 0, "l0": 4, "max_density": 0.5}


@pytest.fixture
def sound_run(run: Run) -> Run:
    run.write_units({0: 1.5, 3: 0.25})
    return run


def use(folder: Path) -> None:
    """Read all that is in a run directory."""
    loaded = Run.load(folder)
    loaded.layer_config, loaded.layer, loaded.units, loaded.tokenizer  # noqa: B018 - each is read when it is asked for
    assert loaded.language_model_source
    database = open_trainer_database(IN_MEMORY)
    try:
        register_run(loaded, database)
    finally:
        database.dispose()


def test_units_within_rounding_are_not_rewritten(sound_run: Run) -> None:
    path = sound_run.folder / "units.json"
    before = path.read_bytes()
    sound_run.write_units({0: 1.5 * (1 + 1e-6), 3: 0.25})
    assert path.read_bytes() == before
    for units in ({0: 1.6, 3: 0.25}, {0: 1.6}, {0: 1.6, 5: 1.0}):
        sound_run.write_units(units)
        assert sound_run.units == units
    path.write_text("{")
    Run.load(sound_run.folder).write_units({1: 2.0})
    assert Run.load(sound_run.folder).units == {1: 2.0}


def is_sound_or_said(attempt: Callable[[], object]) -> None:
    """Nothing but a sentence comes of it."""
    try:
        attempt()
    except UserError as error:
        assert "\n" not in str(error)


JSON_FILES = ("run.json", "layer.json", "units.json", "metrics.json")
FILES = (*JSON_FILES, "layer.safetensors", "tokenizer/tokenizer.json")


@st.composite
def changed(draw: st.DrawFn, sound: bytes) -> bytes:
    """JSON with another value, or with another value of one of its keys."""
    values, numbers = json.loads(sound), st.integers() | st.floats() | st.sampled_from([10**12, 2**63, -1, 0, 10**400])
    if draw(st.booleans()) or not isinstance(values, dict):
        return json.dumps(draw(JSON)).encode()
    return json.dumps({**values, draw(st.sampled_from(sorted(values))): draw(JSON | numbers)}).encode()


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_or_changed_file_is_read_or_rejected(name: str, sound_run: Run) -> None:
    path = sound_run.folder / name
    sound = path.read_bytes()
    is_json = name in JSON_FILES

    @tried(8 if name == "tokenizer/tokenizer.json" else 50 if is_json else 25)
    @given(content=damaged(sound) | changed(sound) if is_json else damaged(sound))
    def read(content: bytes) -> None:
        path.write_bytes(content)
        is_sound_or_said(lambda: use(sound_run.folder))

    read()


@pytest.mark.parametrize("name", JSON_FILES)
def test_unparsable_json_is_rejected(name: str, sound_run: Run) -> None:
    for content in ("[" * 200_000, '{"a":' * 100_000, "9" * 10_000, ""):
        (sound_run.folder / name).write_text(content)
        with pytest.raises(UserError):
            use(sound_run.folder)


@pytest.mark.parametrize("name", ["units.json", "metrics.json"])
def test_non_finite_numbers_are_rejected(name: str, sound_run: Run) -> None:
    for value in (float("nan"), float("inf"), 1e300, -1e300):
        metric = {**METRIC, "tokens_per_second": 1000, "seconds": value}
        (sound_run.folder / name).write_text(json.dumps({"0": value} if name == "units.json" else [metric]))
        with pytest.raises(UserError, match=r"Invalid (units|metrics)"):
            use(sound_run.folder)


def test_counts_that_no_database_holds_are_rejected(sound_run: Run) -> None:
    path = sound_run.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokens": 2**63}))
    with pytest.raises(UserError, match=r"run\.json"):
        use(sound_run.folder)


@pytest.mark.parametrize(("link", "target"), [("tokenizer/more.json", "secret.json"), ("linked", "")])
def test_a_link_to_another_folder_is_rejected(sound_run: Run, tmp_path: Path, link: str, target: str) -> None:
    (tmp_path / "secret.json").write_text('"private"')
    (sound_run.folder / link).symlink_to(tmp_path / target)
    with pytest.raises(UserError, match="links to another folder"):
        Run.from_pretrained(sound_run.folder)


def test_links_of_the_hubs_cache_are_followed(sound_run: Run, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "main"
    shutil.copytree(sound_run.folder, snapshot)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    (snapshot / "layer.json").rename(tmp_path / "models--a--b" / "blobs" / "1")
    (snapshot / "layer.json").symlink_to("../../blobs/1")
    assert Run.from_pretrained(snapshot).layer_config == sound_run.layer_config


def test_tensors_with_wrong_names_shapes_and_dtypes_are_rejected(sound_run: Run) -> None:
    path = sound_run.folder / "layer.safetensors"
    sound = load_file(path)
    name = sorted(sound)[0]
    changes = ({name: sound[name][:-1].contiguous()}, {"more": torch.zeros(2)}, {name: sound[name].flatten()})
    for tensors in ({}, *({**sound, **change} for change in changes)):
        save_file(tensors, path)
        with pytest.raises(UserError, match="do not match the layer config"):
            load_layer(sound_run.folder)


def checkpoint_of(sound_run: Run) -> LayerTrainer:
    """Trainer of the run's layer that has written a checkpoint after one step."""
    trainer = LayerTrainer.from_layer(load_layer(sound_run.folder), sound_run.config, 2)
    trainer.train_step(MlpActivations(torch.randn(4, 16), torch.randn(4, 16)))
    trainer.save(sound_run.folder, 1.0)
    return trainer


def test_a_damaged_checkpoint_is_read_or_rejected(sound_run: Run) -> None:
    trainer = checkpoint_of(sound_run)
    for name in ("optimizer.safetensors", "position.json", "layer.safetensors"):
        path = sound_run.folder / "checkpoint-1" / name
        sound = path.read_bytes()

        @tried(15)
        @given(content=damaged(sound))
        def read(content: bytes) -> None:
            path.write_bytes(content)  # noqa: B023 - it is called before the next
            is_sound_or_said(lambda: trainer.restore(sound_run.folder / "checkpoint-1", 4))

        read()
        path.write_bytes(sound)


@pytest.mark.parametrize("name", ["layer.safetensors", "checkpoint-1/optimizer.safetensors"])
def test_a_pickle_under_the_name_of_safetensors_does_not_run(name: str, sound_run: Run, tmp_path: Path) -> None:
    witness, trainer = tmp_path / "it-ran", checkpoint_of(sound_run)
    torch.save(Hostile(witness), tmp_path / "saved")
    for content in (pickle.dumps(Hostile(witness)), (tmp_path / "saved").read_bytes()):
        (sound_run.folder / name).write_bytes(content)
        with pytest.raises(UserError):
            load_layer(sound_run.folder)
            trainer.restore(sound_run.folder / "checkpoint-1", 4)
    assert not witness.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_pickle_in_a_language_model_does_not_run(name: str, tmp_path: Path) -> None:
    folder, witness = saved_language_model(tmp_path / "language-model"), tmp_path / "it-ran"
    for weights in folder.glob("*.safetensors"):
        weights.unlink()
    torch.save({"model.embed_tokens.weight": Hostile(witness)}, folder / name)
    with pytest.raises(UserError):
        load_module(str(folder), torch.float32)
    assert not witness.exists()


def test_remote_code_of_a_language_model_does_not_run(tmp_path: Path) -> None:
    folder, witness = saved_language_model(tmp_path / "language-model"), tmp_path / "it-ran"
    (folder / "modeling_own.py").write_text(f"import pathlib; pathlib.Path({str(witness)!r}).touch()\n")
    own = {"AutoConfig": "modeling_own.Config", "AutoModelForCausalLM": "modeling_own.Model"}
    for file, more in (
        ("config.json", {"auto_map": own, "model_type": "own"}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["modeling_own.T", None]}, "tokenizer_class": "T"}),
    ):
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**values, **more}))
    with pytest.raises(UserError):
        load_module(str(folder), torch.float32)
    is_sound_or_said(lambda: load_tokenizer(str(folder)))
    assert not witness.exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_language_model_is_read_or_rejected(name: str, tmp_path: Path) -> None:
    folder = saved_language_model(tmp_path / "language-model")
    path = folder / name
    sound = path.read_bytes()

    @tried(6)
    @given(content=damaged(sound))
    def read(content: bytes) -> None:
        path.write_bytes(content)
        if name.startswith("tokenizer"):
            is_sound_or_said(lambda: load_tokenizer(str(folder)))
        else:
            is_sound_or_said(lambda: load_module(str(folder), torch.float32))

    read()
