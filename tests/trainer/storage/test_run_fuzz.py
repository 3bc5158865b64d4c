"""Run directories and language models of strangers or spoiled disks: read, or refused in a sentence, and never run."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.loading import load_module
from mxd.trainer.language_model.tokenizer import load_tokenizer
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.registry import load_layer
from mxd.trainer.storage.database.open import IN_MEMORY, open_trainer_database
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.training.checkpoint import Position, load_checkpoint, save_checkpoint
from tests.helpers.fuzzing import Hostile, damaged, tried
from tests.helpers.runs import random_layer, saved_language_model, small_world

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=8,
)
METRIC = {"step": 1, "tokens": 64, "normalized_mse": 0.5, "dead_share": 0, "l0": 4, "max_density": 0.5}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A sound run directory."""
    world = small_world(tmp_path)
    world.database.dispose()
    made = Run.create(world.config(), world.data, world.language_model.tokenizer)
    random_layer(widths=(16, 20, 16), seed=0).save(made.folder)
    made.write_units({0: 1.5, 3: 0.25})
    metric = {**METRIC, "tokens_per_second": 1000, "seconds": 1}
    (made.folder / "metrics.json").write_text(json.dumps([metric]))
    return made


def use(folder: Path) -> None:
    """Read all that is in a run directory."""
    run = Run.load(folder)
    run.layer_config, run.layer, run.units, run.tokenizer  # noqa: B018 - each is read when it is asked for
    assert run.language_model_source
    database = open_trainer_database(IN_MEMORY)
    try:
        register_run(run, database)
    finally:
        database.dispose()


def test_units_within_rounding_are_not_rewritten(run: Run) -> None:
    path = run.folder / "units.json"
    before = path.read_bytes()
    run.write_units({0: 1.5 * (1 + 1e-6), 3: 0.25})
    assert path.read_bytes() == before
    for units in ({0: 1.6, 3: 0.25}, {0: 1.6}, {0: 1.6, 5: 1.0}):
        run.write_units(units)
        assert run.units == units
    path.write_text("{")
    Run.load(run.folder).write_units({1: 2.0})
    assert Run.load(run.folder).units == {1: 2.0}


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
def test_a_damaged_or_changed_file_is_read_or_rejected(name: str, run: Run) -> None:
    path = run.folder / name
    sound = path.read_bytes()
    is_json = name in JSON_FILES

    @tried(8 if name == "tokenizer/tokenizer.json" else 50 if is_json else 25)
    @given(content=damaged(sound) | changed(sound) if is_json else damaged(sound))
    def read(content: bytes) -> None:
        path.write_bytes(content)
        is_sound_or_said(lambda: use(run.folder))

    read()


@pytest.mark.parametrize("name", JSON_FILES)
def test_unparsable_json_is_rejected(name: str, run: Run) -> None:
    for content in ("[" * 200_000, '{"a":' * 100_000, "9" * 10_000, ""):
        (run.folder / name).write_text(content)
        with pytest.raises(UserError):
            use(run.folder)


@pytest.mark.parametrize("name", ["units.json", "metrics.json"])
def test_non_finite_numbers_are_rejected(name: str, run: Run) -> None:
    for value in (float("nan"), float("inf"), 1e300, -1e300):
        metric = {**METRIC, "tokens_per_second": 1000, "seconds": value}
        (run.folder / name).write_text(json.dumps({"0": value} if name == "units.json" else [metric]))
        with pytest.raises(UserError, match=r"Invalid (units|metrics)"):
            use(run.folder)


def test_counts_that_no_database_holds_are_rejected(run: Run) -> None:
    path = run.folder / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "tokens": 2**63}))
    with pytest.raises(UserError, match=r"run\.json"):
        use(run.folder)


def test_a_link_to_another_folder_is_rejected(run: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text('"private"')
    (run.folder / "tokenizer" / "more.json").symlink_to(secret)
    with pytest.raises(UserError, match="links to another folder"):
        Run.from_pretrained(run.folder)
    (run.folder / "tokenizer" / "more.json").unlink()
    (run.folder / "linked").symlink_to(tmp_path, target_is_directory=True)
    with pytest.raises(UserError, match="links to another folder"):
        Run.from_pretrained(run.folder)


def test_links_of_the_hubs_cache_are_followed(run: Run, tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "main"
    shutil.copytree(run.folder, snapshot)
    (tmp_path / "models--a--b" / "blobs").mkdir()
    (snapshot / "layer.json").rename(tmp_path / "models--a--b" / "blobs" / "1")
    (snapshot / "layer.json").symlink_to("../../blobs/1")
    assert Run.from_pretrained(snapshot).layer_config == run.layer_config


def test_tensors_with_wrong_names_shapes_and_dtypes_are_rejected(run: Run) -> None:
    path = run.folder / "layer.safetensors"
    sound = load_file(path)
    name = sorted(sound)[0]
    wrong: tuple[dict[str, torch.Tensor], ...] = (
        {},
        {**sound, name: sound[name][:-1].contiguous()},
        {**sound, "more": torch.zeros(2)},
        {**sound, name: sound[name].flatten()},
    )
    for tensors in wrong:
        save_file(tensors, path)
        with pytest.raises(UserError, match="do not match the layer config"):
            load_layer(run.folder)


def checkpoint_of(run: Run) -> tuple[SparseLayer, torch.optim.Optimizer]:
    """Write a checkpoint of the run's layer after one step."""
    layer = load_layer(run.folder)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.randn(4, 16)).output_TO.sum().backward()
    optimizer.step()
    last_active_N = torch.zeros(layer.config.num_experts, dtype=torch.int64)
    save_checkpoint(run.folder, layer, optimizer, last_active_N, Position(step=1, seconds=1.0))
    return layer, optimizer


def test_a_damaged_checkpoint_is_read_or_rejected(run: Run) -> None:
    layer, optimizer = checkpoint_of(run)
    for name in ("optimizer.safetensors", "position.json", "layer.safetensors"):
        path = run.folder / "checkpoint-1" / name
        sound = path.read_bytes()

        @tried(15)
        @given(content=damaged(sound))
        def read(content: bytes) -> None:
            path.write_bytes(content)  # noqa: B023 - it is called before the next
            is_sound_or_said(lambda: load_checkpoint(run.folder / "checkpoint-1", layer, optimizer))

        read()
        path.write_bytes(sound)


@pytest.mark.parametrize("name", ["layer.safetensors", "checkpoint-1/optimizer.safetensors"])
def test_a_pickle_under_the_name_of_safetensors_does_not_run(name: str, run: Run, tmp_path: Path) -> None:
    witness, (layer, optimizer) = tmp_path / "it-ran", checkpoint_of(run)
    torch.save(Hostile(witness), tmp_path / "saved")
    for content in (pickle.dumps(Hostile(witness)), (tmp_path / "saved").read_bytes()):
        (run.folder / name).write_bytes(content)
        with pytest.raises(UserError):
            load_layer(run.folder)
            load_checkpoint(run.folder / "checkpoint-1", layer, optimizer)
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
