"""What cannot be imported is refused with a sentence, and nothing in a file is ever executed."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from backend.cli import run as mxd
from tests.language_models import saved_language_model
from tests.outside import save_checkpoint, save_circuit_tracer, save_saelens, save_sparsify
from trainer.config import OptimizerConfig, TextConfig, TrainConfig
from trainer.errors import UserError
from trainer.ongoing import refuse_others
from trainer.run import run_names

Capture = pytest.CaptureFixture[str]


class _Hostile:
    """Whoever unpickles it runs a command."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


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
    for number, content in enumerate(({"cfg": _Hostile(place / "ran"), "state_dict": {}}, _Hostile(place / "ran"))):
        torch.save(content, place / f"{number}.pt")
        assert "nothing in it has been executed" in refused(capsys, f"{number}.pt")
    (place / "plain.pt").write_bytes(pickle.dumps(_Hostile(place / "ran")))
    refused(capsys, "plain.pt")
    assert not (place / "ran").exists()
    pickle.loads(pickle.dumps(_Hostile(place / "ran")))
    assert (place / "ran").exists(), "it would have run elsewhere"


def test_files_that_are_no_checkpoints(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_tensors_that_claim_more_than_they_hold(place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    large = torch.zeros(1).as_strided((1 << 20, 1 << 20), (0, 0))
    for number, value in enumerate((large, torch.zeros(3, 3).to_sparse(), torch.empty(3, device="meta"))):
        save_checkpoint(place / f"{number}.pt", monkeypatch, tensors={"W_enc": value})
        assert "larger than what the file holds" in refused(capsys, f"{number}.pt")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"is_transcoder": False}, "autoencoder"),
        ({"hook_point": "blocks.1.hook_resid_mid"}, "reads blocks.1.hook_resid_mid"),
        ({"out_hook_point": "blocks.1.hook_resid_post"}, "writes blocks.1.hook_resid_post"),
        ({"hook_point": 3}, "no usable hook_point"),
        ({"mlp_activation_fn": "tanh"}, "activation tanh"),
        ({"use_skip": True}, "skip connection"),
        ({"use_conditional": False, "mlp_activation_fn": "relu"}, "holds W_cond, gate, gate_bias too"),
        ({"topk": 41}, "K is 41"),
    ],
)
def test_checkpoints_of_other_layers(
    place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sentence: str
) -> None:
    save_checkpoint(place / "theirs.pt", monkeypatch, **settings)
    assert sentence in refused(capsys, "theirs.pt")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: save_sparsify(path / "layers.1.mlp", transcode=False), "autoencoder"),
    (lambda path: save_sparsify(path / "layers.1.mlp", activation="groupmax"), "activation groupmax"),
    (lambda path: save_sparsify(path / "layers.1.mlp", embed_skip=True), "embed_skip"),
    (lambda path: save_sparsify(path / "layers.1.mlp", k=0), "no usable k"),
    (lambda path: save_sparsify(path / "layers.1.attn"), "layers.1.attn is no MLP"),
    (lambda path: save_sparsify(path / "layers.7.mlp"), "there is no layer 7"),
    (lambda path: save_saelens(path / "a", "gated"), "of a gated"),
    (lambda path: save_saelens(path / "a", normalize_activations="layer_norm"), "normalize_activations layer_norm"),
    (
        lambda path: save_saelens(path / "a", metadata={"hook_name": "blocks.1.hook_mlp_in"}),
        "reads blocks.1.hook_mlp_in",
    ),
    (
        lambda path: save_circuit_tracer(path / "a", config="model_kind: cross_layer_transcoder"),
        "cross_layer_transcoder",
    ),
    (lambda path: save_circuit_tracer(path / "a", config="transcoders: ['hf://x/y/z.npz']"), "other repositories"),
    (lambda path: save_circuit_tracer(path / "a", config="!!python/object/apply:os.getcwd []"), "cannot be read"),
    (lambda path: save_circuit_tracer(path / "a", config="[1, 2]"), "names and values"),
]


@pytest.mark.parametrize(("save", "sentence"), REFUSED, ids=[sentence for _, sentence in REFUSED])
def test_other_layers(place: Path, capsys: Capture, save: Callable[[Path], object], sentence: str) -> None:
    save(place / "theirs")
    more = ["--layer", "1"] if (place / "theirs" / "a" / "config.yaml").exists() else []
    assert sentence in refused(capsys, "theirs", *more)


def test_damaged_and_strange_tensors(place: Path, capsys: Capture) -> None:
    save_sparsify(place / "layers.1.mlp")
    path = place / "layers.1.mlp" / "sae.safetensors"
    tensors = load_file(path)
    for change, sentence in (
        ({"W_dec": tensors["W_dec"] * float("nan")}, "no finite numbers"),
        ({"W_dec": tensors["W_dec"][:, :8].contiguous()}, "do not fit together"),
        ({"b_dec": tensors["b_dec"][:8].contiguous()}, "reads 16 numbers and writes 8"),
        ({"extra": tensors["b_dec"].clone()}, "holds extra too"),
    ):
        save_file(tensors | change, path)
        assert sentence in refused(capsys, "layers.1.mlp")
    path.write_bytes(b"no tensors")
    assert "cannot be read as safetensors" in refused(capsys, "layers.1.mlp")
    save_file({"W_dec": tensors["W_dec"]}, path)
    assert "has no tensor encoder.weight" in refused(capsys, "layers.1.mlp")
    (place / "layers.1.mlp" / "cfg.json").write_text("[" * 100_000)
    assert "cannot be read as settings" in refused(capsys, "layers.1.mlp")


def test_a_norm_behind_the_mlp(place: Path, capsys: Capture) -> None:
    saved_language_model(place / "lm", "gemma2")
    save_saelens(place / "theirs")
    assert "behind the norm" in refused(capsys, "theirs")
    save_saelens(place / "inside", metadata={"hook_name_out": "blocks.1.mlp.hook_out"})
    assert mxd(["import", "inside", "--language-model", "lm", "--name", "theirs"]) == 0


def test_which_layer(place: Path, capsys: Capture) -> None:
    save_circuit_tracer(place / "set")
    assert "holds 3 layers; choose one with --layer or --part: layer_0.safetensors" in refused(capsys, "set")
    assert "no such layer" in refused(capsys, "set", "--layer", "5")
    assert "no such layer" in refused(capsys, "set", "--part", "layer_9.safetensors")
    save_sparsify(place / "layers.1.mlp")
    assert "is of layer 1, not of layer 2" in refused(capsys, "layers.1.mlp", "--layer", "2")
    save_sparsify(place / "mine")
    assert "give --layer" in refused(capsys, "mine")
    (place / "nothing").mkdir()
    assert "holds no layer of a known format" in refused(capsys, "nothing")
    assert "There is no file or folder ./none" in refused(capsys, "./none")
    assert "reads 16 numbers" in _of_another(place, capsys)


def _of_another(place: Path, capsys: Capture) -> str:
    config = json.loads((place / "lm" / "config.json").read_text())
    (place / "lm" / "config.json").write_text(json.dumps(config | {"n_embd": 24, "n_head": 3}))
    return refused(capsys, "layers.1.mlp")


def test_an_imported_run_is_no_run_to_go_on_with(place: Path, capsys: Capture) -> None:
    save_sparsify(place / "layers.1.mlp")
    words = ["import", "layers.1.mlp", "--language-model", "lm", "--name", "theirs"]
    assert mxd(words) == 0
    assert "next: mxd index theirs" in capsys.readouterr().out
    assert mxd(words) == 2
    assert "The run theirs exists" in capsys.readouterr().err
    assert mxd(["runs"]) == 0
    assert "sparsify" in capsys.readouterr().out
    fresh = TrainConfig(name="theirs", language_model="lm", layer=1, text=TextConfig(text="a.txt"), tokens=10)
    with pytest.raises(UserError, match="was imported"):
        refuse_others(fresh, Path("data"), "if-any")


def test_what_is_only_imported_is_not_fitted() -> None:
    settings: dict[str, Any] = {"name": "a", "language_model": "lm", "layer": 1, "text": {"text": "a.txt"}}
    settings |= {"optimizer": OptimizerConfig()}
    with pytest.raises(ValueError, match="can be imported but not fitted"):
        TrainConfig(**settings, tokens=5, method="jumprelu-transcoder")
    with pytest.raises(ValueError, match="greater than 0"):
        TrainConfig(**settings, tokens=0)
