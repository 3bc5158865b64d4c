"""Files that cannot be imported are rejected with one sentence, and nothing in a file is executed."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mxd.backend.cli.main import run as mxd
from mxd.trainer.config import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.storage.run import run_names
from mxd.trainer.training.train import check_resumable
from tests.helpers.formats.outside import (
    save_checkpoint,
    save_circuit_tracer,
    save_clt_training,
    save_saelens,
    save_sparsify,
)
from tests.helpers.fuzzing import Hostile
from tests.helpers.language_models import saved_language_model

Capture = pytest.CaptureFixture[str]


SET = (
    "model_name: tiny\nmodel_kind: transcoder_set\nfeature_input_hook: mlp.hook_in\nfeature_output_hook: mlp.hook_out\n"
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a language model and data, in which commands run."""
    saved_language_model(tmp_path / "lm", "gpt2")
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(capsys: Capture, *words: str) -> str:
    """The one sentence with which an import ends."""
    capsys.readouterr()
    assert mxd(["import", *words, "--language-model", "lm", "--name", "theirs"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1, said.err
    assert run_names(Path("data")) == []
    return said.err


def test_a_hostile_pickle_does_not_run(place: Path, capsys: Capture) -> None:
    for number, content in enumerate(({"cfg": Hostile(place / "ran"), "state_dict": {}}, Hostile(place / "ran"))):
        torch.save(content, place / f"{number}.pt")
        assert "Nothing in it was executed" in refused(capsys, f"{number}.pt")
    (place / "plain.pt").write_bytes(pickle.dumps(Hostile(place / "ran")))
    refused(capsys, "plain.pt")
    assert not (place / "ran").exists()
    pickle.loads(pickle.dumps(Hostile(place / "ran")))
    assert (place / "ran").exists(), "it would have run elsewhere"


def test_files_that_are_not_checkpoints(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "empty.pt").touch()
    (place / "text.pt").write_text("not a checkpoint")
    torch.save({"a": torch.zeros(1)}, place / "other.pt")
    torch.save([1, 2], place / "list.pt")
    save_checkpoint(place / "whole.pt", monkeypatch)
    (place / "half.pt").write_bytes((place / "whole.pt").read_bytes()[:4000])
    for name in ("empty", "text", "other", "list", "half"):
        assert f"{name}.pt" in refused(capsys, f"{name}.pt")
    with zipfile.ZipFile(place / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10_000_000))
    assert "unpacks to" in refused(capsys, "bomb.pt")


def test_tensors_larger_than_their_storage(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    large = torch.zeros(1).as_strided((1 << 20, 1 << 20), (0, 0))
    for number, value in enumerate((large, torch.zeros(3, 3).to_sparse(), torch.empty(3, device="meta"))):
        save_checkpoint(place / f"{number}.pt", monkeypatch, tensors={"W_enc": value})
        assert "larger than its data" in refused(capsys, f"{number}.pt")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"is_transcoder": False}, "autoencoder"),
        ({"hook_point": "blocks.1.hook_resid_mid"}, "input hook: blocks.1.hook_resid_mid"),
        ({"out_hook_point": "blocks.1.hook_resid_post"}, "output hook: blocks.1.hook_resid_post"),
        ({"hook_point": 3}, "a string 'hook_point'"),
        ({"mlp_activation_fn": "tanh"}, "activation: tanh"),
        ({"use_skip": True}, "skip connection"),
        (
            {"use_conditional": False, "mlp_activation_fn": "relu"},
            "Unknown tensors in theirs.pt: W_cond, gate, gate_bias",
        ),
        ({"topk": 41}, "k=41 exceeds the number of experts"),
    ],
)
def test_checkpoints_without_a_supported_layer(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sentence: str
) -> None:
    save_checkpoint(place / "theirs.pt", monkeypatch, **settings)
    assert sentence in refused(capsys, "theirs.pt")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: save_sparsify(path / "layers.1.mlp", transcode=False), "autoencoder"),
    (lambda path: save_sparsify(path / "layers.1.mlp", activation="groupmax"), "activation: groupmax"),
    (lambda path: save_sparsify(path / "layers.1.mlp", embed_skip=True), "embed_skip"),
    (lambda path: save_sparsify(path / "layers.1.mlp", molt_n=4), "Unsupported setting: molt_n"),
    (lambda path: save_clt_training(path / "layers.1.mlp", "mxd", mxd_encoder_activation="relu"), "activation: relu"),
    (lambda path: save_clt_training(path / "layers.1.mlp", "molt", skip_connection=True), "skip_connection of an MxD"),
    (lambda path: save_clt_training(path / "layers.1.mlp", "molt", shift=0.1), "post_enc in sae.safetensors is not"),
    (lambda path: save_sparsify(path / "layers.1.mlp", k=0), "positive integer 'k'"),
    (lambda path: save_sparsify(path / "layers.1.attn"), "hookpoint: layers.1.attn"),
    (lambda path: save_sparsify(path / "layers.7.mlp"), "There is no layer 7"),
    (lambda path: save_saelens(path / "a", "gated"), "architecture: gated"),
    (lambda path: save_saelens(path / "a", normalize_activations="layer_norm"), "normalize_activations = 'layer_norm'"),
    (lambda path: save_saelens(path / "a", apply_b_dec_to_input=True), "apply_b_dec_to_input = True"),
    (lambda path: save_saelens(path / "a", rescale_acts_by_decoder_norm=True), "rescale_acts_by_decoder_norm = True"),
    (lambda path: save_saelens(path / "a", something_new=0.5), "something_new = 0.5"),
    (lambda path: save_saelens(path / "a", metadata={"hook_head_index": 0}), "hook_head_index = 0"),
    (
        lambda path: save_saelens(path / "a", metadata={"hook_name_out": "blocks.2.hook_mlp_out"}),
        "it reads blocks.1.ln2.hook_normalized and writes blocks.2.hook_mlp_out",
    ),
    (lambda path: save_circuit_tracer(path / "a", config=f"{SET}feature_scale: 2.0\n"), "feature_scale = 2.0"),
    (lambda path: save_circuit_tracer(path / "a", config=f"{SET}activation: gelu\n"), "activation: gelu"),
    (
        lambda path: save_circuit_tracer(path / "a", config=SET.replace(": mlp.hook_out", ": blocks.2.mlp.hook_out")),
        "Both must be of the layer's own block, 1",
    ),
    (
        lambda path: save_saelens(path / "a", metadata={"hook_name": "blocks.1.hook_mlp_in"}),
        "input hook: blocks.1.hook_mlp_in",
    ),
    (
        lambda path: save_circuit_tracer(path / "a", config="model_kind: cross_layer_transcoder"),
        "cross_layer_transcoder",
    ),
    (lambda path: save_circuit_tracer(path / "a", config="transcoders: ['hf://x/y/z.npz']"), "files of other repos"),
    (lambda path: save_circuit_tracer(path / "a", config="!!python/object/apply:os.getcwd []"), "Invalid config file"),
    (lambda path: save_circuit_tracer(path / "a", config="[1, 2]"), "must be a mapping"),
]


@pytest.mark.parametrize(("save", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_unsupported_activations_and_architectures(
    place: Path, capsys: Capture, save: Callable[[Path], object], sentence: str
) -> None:
    save(place / "theirs")
    more = ["--layer", "1"] if (place / "theirs" / "a" / "config.yaml").exists() else []
    assert sentence in refused(capsys, "theirs", *more)


def test_damaged_tensors_and_wrong_shapes(place: Path, capsys: Capture) -> None:
    save_sparsify(place / "layers.1.mlp")
    path = place / "layers.1.mlp" / "sae.safetensors"
    tensors = load_file(path)
    for change, sentence in (
        ({"W_dec": tensors["W_dec"] * float("nan")}, "NaN or infinite"),
        ({"W_dec": tensors["W_dec"][:, :8].contiguous()}, "inconsistent shapes"),
        ({"b_dec": tensors["b_dec"][:8].contiguous()}, "widths 16 -> 8"),
        ({"extra": tensors["b_dec"].clone()}, ": extra."),
    ):
        save_file(tensors | change, path)
        assert sentence in refused(capsys, "layers.1.mlp")
    path.write_bytes(b"no tensors")
    assert "Invalid safetensors file" in refused(capsys, "layers.1.mlp")
    save_file({"W_dec": tensors["W_dec"]}, path)
    assert "Missing tensor: encoder.weight" in refused(capsys, "layers.1.mlp")
    (place / "layers.1.mlp" / "cfg.json").write_text("[" * 100_000)
    assert "Invalid config file" in refused(capsys, "layers.1.mlp")


@pytest.mark.parametrize("family", ["gemma2", "granite"])
def test_layers_that_write_what_the_block_adds_are_rejected(place: Path, capsys: Capture, family: str) -> None:
    """Gemma 2 adds a norm of the MLP's output, Granite a multiple of it."""
    saved_language_model(place / "lm", family)
    save_saelens(place / "theirs")
    assert "a norm or a multiple of it, so the layer cannot replace an MLP" in refused(capsys, "theirs")
    save_saelens(place / "inside", metadata={"hook_name_out": "blocks.1.mlp.hook_out"})
    assert mxd(["import", "inside", "--language-model", "lm", "--name", "theirs"]) == 0


def test_an_ambiguous_layer_is_rejected(place: Path, capsys: Capture) -> None:
    save_circuit_tracer(place / "set")
    assert "has 3 layers. Choose one with --layer or --part: layer_0.safetensors" in refused(capsys, "set")
    assert "no such layer" in refused(capsys, "set", "--layer", "5")
    assert "no such layer" in refused(capsys, "set", "--part", "layer_9.safetensors")
    save_sparsify(place / "layers.1.mlp")
    assert "is for layer 1, not layer 2" in refused(capsys, "layers.1.mlp", "--layer", "2")
    save_sparsify(place / "mine")
    assert "Set --layer" in refused(capsys, "mine")
    (place / "nothing").mkdir()
    assert "has no layer in a supported format" in refused(capsys, "nothing")
    assert "No such file or folder: ./none" in refused(capsys, "./none")
    assert "widths 16 -> 16" in _of_another(place, capsys)


def _of_another(place: Path, capsys: Capture) -> str:
    config = json.loads((place / "lm" / "config.json").read_text())
    (place / "lm" / "config.json").write_text(json.dumps(config | {"n_embd": 24, "n_head": 3}))
    return refused(capsys, "layers.1.mlp")


def test_an_imported_run_cannot_be_resumed(place: Path, capsys: Capture) -> None:
    save_sparsify(place / "layers.1.mlp")
    words = ["import", "layers.1.mlp", "--language-model", "lm", "--name", "theirs"]
    assert mxd(words) == 0
    assert "Next: mxd index theirs" in capsys.readouterr().out
    assert mxd(words) == 2
    assert "Run 'theirs' already exists" in capsys.readouterr().err
    assert mxd(["runs"]) == 0
    assert "sparsify" in capsys.readouterr().out
    fresh = TrainConfig(name="theirs", language_model="lm", layer=1, text=TextConfig(dataset="a.txt"), tokens=10)
    with pytest.raises(UserError, match="was imported"):
        check_resumable(fresh, Path("data"), "if-any")


def test_import_only_methods_cannot_be_trained() -> None:
    settings: dict[str, Any] = {"name": "a", "language_model": "lm", "layer": 1, "text": {"dataset": "a.txt"}}
    settings |= {"optimizer": OptimizerConfig()}
    with pytest.raises(ValueError, match="can be imported but not trained"):
        TrainConfig(**settings, tokens=5, method="jumprelu-transcoder")
    with pytest.raises(ValueError, match="greater than 0"):
        TrainConfig(**settings, tokens=0)


def test_yaml_aliases_do_not_expand_beyond_the_limit(place: Path, capsys: Capture) -> None:
    merges = "a0: &a0 {x: 1}\n" + "".join(
        f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 30)
    )
    for content in (merges, "a: &a [1]\nb: [*a, *a]\n", "[" * 100_000):
        (place / "set").mkdir(exist_ok=True)
        (place / "set" / "layer_1.safetensors").touch()
        (place / "set" / "config.yaml").write_text(content)
        assert "Invalid config file" in refused(capsys, "set")
