"""Layers and features of every format: what they answer, that they index and steer, files that are rejected."""

import gzip
import json
import pickle
import zipfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sqlalchemy.orm import Session
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from mxd.backend.cli.main import run as mxd
from mxd.trainer.analysis.imported_features import read_features, save_features
from mxd.trainer.config.analysis import ImportConfig
from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, ExampleRecord, RunRecord
from mxd.trainer.storage.formats.import_run import ImportResult, import_run
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.training.train import check_resumable
from tests.helpers.fuzzing import Hostile
from tests.helpers.outside import (
    WIDTH,
    Answer,
    numbers,
    save_checkpoint,
    save_circuit_tracer,
    save_clt_training,
    save_saelens,
    save_sparsify,
)
from tests.helpers.runs import World, byte_tokenizer, saved_language_model
from tests.helpers.servers.hub import COMMIT, fake_hub, using_hub

IDS = torch.arange(1, 33).reshape(2, 16)

Save = Callable[[Path, pytest.MonkeyPatch], Answer]
FORMATS: dict[str, tuple[str, Save]] = {
    "mxd-checkpoint": ("theirs.pt", lambda path, patch: save_checkpoint(path, patch)),
    "mxd-checkpoint glu": ("theirs.pt", lambda path, patch: save_checkpoint(path, patch, glu=True)),
    "mxd-checkpoint swish": (
        "theirs.pt",
        lambda path, patch: save_checkpoint(path, patch, glu=True, mlp_activation_fn="silu"),
    ),
    "sparsify": ("layers.1.mlp", lambda path, _: save_sparsify(path)),
    "sparsify skip": ("h.1.mlp", lambda path, _: save_sparsify(path, skip=True)),
    "sparsify clt-training mxd": ("layers.1.mlp", lambda path, _: save_clt_training(path, "mxd")),
    "sparsify clt-training molt": ("layers.1.mlp", lambda path, _: save_clt_training(path, "molt")),
    "saelens": ("one", lambda path, _: save_saelens(path)),
    "saelens skip": ("one", lambda path, _: save_saelens(path, "skip_transcoder")),
    "saelens jumprelu": ("one", lambda path, _: save_saelens(path, "jumprelu_transcoder")),
    "saelens jumprelu skip": ("one", lambda path, _: save_saelens(path, "jumprelu_skip_transcoder")),
    "circuit-tracer": ("set", lambda path, _: save_circuit_tracer(path)),
    "circuit-tracer relu": ("set", lambda path, _: save_circuit_tracer(path, threshold=False)),
}


def language_model_of(folder: Path, family: str) -> Path:
    """A language model whose norms have weights and biases that matter."""
    path = saved_language_model(folder, family)
    language_model = LanguageModel.load(str(path), "cpu", torch.float32)
    for place, (name, parameter) in enumerate(language_model.module.named_parameters()):
        if parameter.dim() == 1 and ("ln" in name or "norm" in name):
            parameter.data += numbers(len(parameter), seed=place)
    language_model.module.save_pretrained(path)
    return path


def imported(world: World, source: Path, family: str, **more: Any) -> tuple[ImportResult, LanguageModel, Run]:
    path = language_model_of(world.data.parent / family, family)
    config = ImportConfig(source=str(source), name="theirs", language_model=str(path), **({"layer": 1} | more))
    result = import_run(config, world.data, world.database)
    return result, LanguageModel.load(str(path), "cpu", torch.float32), Run.load("theirs", world.data)


def normalized(norm: nn.Module, affine: bool) -> Answer:
    """Output of a norm, after or before its weight and bias."""

    def apply(x: Tensor) -> Tensor:
        if isinstance(norm, nn.LayerNorm):
            weight, bias = (norm.weight, norm.bias) if affine else (None, None)
            return nn.functional.layer_norm(x, x.shape[-1:], weight, bias, norm.eps)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon)  # type: ignore[operator]

    return apply


@torch.no_grad()
def log_probabilities(language_model: LanguageModel, norm: nn.Module, reads: Answer, writes: Answer) -> Tensor:
    """With layer 1's MLP replaced by what a layer writes that reads the residual stream through ``reads``."""
    seen: list[Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    try:
        with language_model.replace_mlps(
            {1: lambda x, mlp: writes(reads(seen[-1]).reshape(-1, WIDTH)).reshape(x.shape)}
        ):
            return language_model.logits(IDS).log_softmax(dim=-1)
    finally:
        handle.remove()


@pytest.mark.parametrize("case", FORMATS)
def test_an_imported_run_can_be_indexed_routed_and_steered(
    world: World, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    place, save = FORMATS[case]
    save(world.data.parent / place, monkeypatch)
    result, language_model, run = imported(world, world.data.parent / place, "gpt2")
    assert (result.format, result.layer) == (case.split()[0], 1)
    assert replace(world, language_model=language_model).index(run, tokens=2048).examples > 0
    routing = route(language_model, run, "The bridge may have cracked.")
    active = [expert for token in routing.tokens for expert in token.experts]
    assert active and all(expert.activation > 0 for expert in active)
    for token in routing.tokens:
        activations = [expert.activation for expert in token.experts]
        assert activations == sorted(activations, reverse=True)
    edits = (Edit(expert=active[0].expert, mode="add", strength=40),)
    sampling = Sampling(temperature=0, max_tokens=8)
    steps = steer(language_model, run, SteeringConfig(prompt="One day", edits=edits, sampling=sampling))
    generation = SteeredGeneration.collect(run.name, "One day", steps)
    assert generation.text("baseline") != generation.text("steered")
    assert [record.config["origin"]["format"] for record in world.rows(RunRecord)] == [result.format]


@pytest.mark.parametrize(
    ("case", "metadata", "start"),
    [
        ("mxd-checkpoint", {}, "<s>"),
        ("sparsify", {}, "</s>"),
        ("circuit-tracer", {}, "<s>"),
        ("saelens", {"prepend_bos": True}, "<s>"),
        ("saelens", {}, "<|endoftext|>"),
    ],
)
def test_the_run_stores_the_start_token_of_the_format(
    world: World, monkeypatch: pytest.MonkeyPatch, case: str, metadata: dict[str, Any], start: str
) -> None:
    place, save = FORMATS[case]
    source = world.data.parent / place
    save_saelens(source, metadata=metadata) if metadata else save(source, monkeypatch)
    model = language_model_of(world.data.parent / "gpt2", "gpt2")
    tokenizer = deepcopy(byte_tokenizer())
    tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
    tokenizer.save_pretrained(model)
    config = ImportConfig(source=str(source), name="theirs", language_model=str(model), layer=1)
    import_run(config, world.data, world.database)
    assert Run.load("theirs", world.data).config.text.start_token == start


MLP_INPUT: list[Any] = [(case, "gpt2", {}, True) for case in FORMATS if not case.startswith("mxd")]
NORM: list[Any] = [
    (case, family, {}, False) for case in FORMATS if case.startswith("mxd") for family in ("gpt2", "llama")
]
FOLDED = [
    ("saelens skip", family, {"hook_name": f"blocks.1.{hook}", "model_from_pretrained_kwargs": kwargs}, affine)
    for family, hook, kwargs, affine in (
        ("gpt2", "ln2.hook_normalized", {"fold_ln": True}, False),
        ("llama", "ln2.hook_normalized", {}, False),
        ("gpt2", "mlp.hook_in", {"fold_ln": True}, False),
        ("gpt2", "ln2.hook_out", {"fold_ln": False}, True),
        ("llama", "ln2.hook_out", {"fold_ln": True}, False),
    )
]


@pytest.mark.parametrize(("case", "family", "metadata", "affine"), MLP_INPUT + NORM + FOLDED)
def test_a_layer_reads_the_norm_before_or_after_its_weight(
    world: World, monkeypatch: pytest.MonkeyPatch, case: str, family: str, metadata: dict[str, Any], affine: bool
) -> None:
    """SAELens folds weights of norms into the model by default, where it has a name for the norm's output."""
    place, save = FORMATS[case]
    source = world.data.parent / place
    writes = save_saelens(source, "skip_transcoder", metadata=metadata) if metadata else save(source, monkeypatch)
    _, language_model, run = imported(world, source, family)
    norm = norm_of(language_model)
    assert_replaced(language_model, run, log_probabilities(language_model, norm, normalized(norm, affine), writes))


HUGGING_FACE = {"hook_name": "model.layers.1.post_attention_layernorm", "hook_name_out": "model.layers.1.mlp"}


def test_saelens_names_modules_of_hugging_face_models(world: World) -> None:
    source = world.data.parent / "one"
    writes = save_saelens(source, metadata=HUGGING_FACE)
    result, language_model, run = imported(world, source, "llama", layer=None)
    norm = norm_of(language_model)
    assert result.layer == 1
    assert_replaced(language_model, run, log_probabilities(language_model, norm, norm.forward, writes))


def test_a_norm_that_is_not_before_the_mlp_is_rejected(world: World) -> None:
    save_saelens(world.data.parent / "one", metadata=HUGGING_FACE)
    with pytest.raises(UserError, match="not the input of the MLPs"):
        imported(world, world.data.parent / "one", "gemma2")


def test_a_folder_of_sparsifys_trainer(world: World) -> None:
    folder = world.data.parent / "trainer"
    save_sparsify(folder / "layers.1.mlp")
    for name in ("optimizer_0.pt", "lr_scheduler.pt", "state.pt", "rank_0_state.pt"):
        torch.save({"state": {}}, folder / name)
    (folder / "config.json").write_text("{}")
    assert imported(world, folder, "gpt2", layer=None)[0].layer == 1


def norm_of(language_model: LanguageModel) -> nn.Module:
    block = language_model.architecture.block(1)
    return block.ln_2 if hasattr(block, "ln_2") else block.post_attention_layernorm  # type: ignore[return-value]


def assert_replaced(language_model: LanguageModel, run: Run, wanted: Tensor) -> None:
    with language_model.replace({1: run.layer}):
        found = language_model.logits(IDS).log_softmax(dim=-1)
    original = language_model.logits(IDS).log_softmax(dim=-1)
    assert (wanted - original).abs().max() > 0.01, "a test that can fail"
    assert (found - wanted).abs().max() < 1e-4


def test_a_top_k_set_of_circuit_tracer(world: World) -> None:
    source = world.data.parent / "set"
    hooks = "feature_input_hook: ln2.hook_normalized\nfeature_output_hook: hook_mlp_out\n"
    save_circuit_tracer(source, threshold=False, config=f"model_kind: transcoder_set\n{hooks}activation: topk\nk: 3\n")
    result, _, _ = imported(world, source, "gpt2", layer=2)
    assert (result.method, result.k, result.part) == ("transcoder", 3, "layer_2.safetensors")


def test_the_papers_other_layers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without top-k, a mixture lets every positive expert through."""
    save_checkpoint(world.data.parent / "theirs.pt", monkeypatch, topk=-1)
    result, _, _ = imported(world, world.data.parent / "theirs.pt", "gpt2", layer=None)
    assert (result.method, result.k) == ("relu-mxd", 40)


REFERENCE = Path(__file__).parents[3] / "reference" / "import"


@pytest.fixture
def language_model_folder(tmp_path: Path) -> Path:
    """The language model of the checkpoint, with a tokenizer, which it has none of."""
    folder = tmp_path / "lm"
    module = AutoModelForCausalLM.from_pretrained(REFERENCE / "language_model")
    module.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return folder


def test_log_probabilities_are_those_of_the_papers_code(tmp_path: Path, language_model_folder: Path) -> None:
    database = open_trainer_database(sqlite_url(tmp_path / "data"))
    config = ImportConfig(source=str(REFERENCE / "mxd.pt"), name="theirs", language_model=str(language_model_folder))
    result = import_run(config, tmp_path / "data", database)
    database.dispose()
    assert (result.layer, result.method, result.num_experts, result.k) == (1, "mxd", 64, 6)
    golden = load_file(REFERENCE / "expected.safetensors")
    language_model = LanguageModel.load(str(language_model_folder), "cpu", torch.float32)
    run = Run.load("theirs", tmp_path / "data")
    original = language_model.logits(golden["input_ids"]).log_softmax(dim=-1)
    assert (original - golden["log_probs.original"]).abs().max() < 1e-5
    with language_model.replace({1: run.layer}):
        replaced = language_model.logits(golden["input_ids"]).log_softmax(dim=-1)
    assert (golden["log_probs.replaced"] - golden["log_probs.original"]).abs().max() > 0.1, "a test that can fail"
    assert (replaced - golden["log_probs.replaced"]).abs().max() < 1e-5
    assert run.config.origin is not None
    assert (run.config.origin.format, run.config.tokens) == ("mxd-checkpoint", 480_000_000)


Capture = pytest.CaptureFixture[str]


def test_one_layer_of_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "data"))
    lm = saved_language_model(tmp_path / "lm", "gpt2")
    for layer in (0, 1):
        save_sparsify(tmp_path / "repository" / f"layers.{layer}.mlp")
    words = ["--language-model", str(lm), "--name", "theirs", "--json"]
    several, unknown = ["import", "some-one/coders", *words], ["import", "some-one/other", *words]
    with fake_hub(models={"some-one/coders": tmp_path / "repository"}) as hub, using_hub(hub.url, tmp_path / "home"):
        assert [mxd(command) for command in (several, unknown)] == [2, 2]
        complaints = capsys.readouterr().err
        assert "Choose one with --layer or --part: layers.0.mlp, layers.1.mlp" in complaints
        assert "No such file, folder or Hugging Face Hub repo: some-one/other" in complaints
        assert mxd([*several, "--layer", "1"]) == 0
        assert not any("layers.0.mlp/sae" in asked for asked in hub.asked)
    result = json.loads(capsys.readouterr().out)
    assert (result["source"], result["part"], result["layer"]) == ("some-one/coders", "layers.1.mlp", 1)
    config = json.loads((tmp_path / "data" / "runs" / "theirs" / "run.json").read_text())
    assert config["origin"]["revision"] == COMMIT
    with using_hub("http://127.0.0.1:9", tmp_path / "home"):
        assert mxd(["others" if word == "theirs" else word for word in several]) == 2
    assert "does not respond" in capsys.readouterr().err


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


REFUSED: list[tuple[Callable[..., object], str, dict[str, Any], str]] = [
    (save_sparsify, "layers.1.mlp", {"transcode": False}, "autoencoder"),
    (save_sparsify, "layers.1.mlp", {"activation": "groupmax"}, "activation: groupmax"),
    (save_sparsify, "layers.1.mlp", {"embed_skip": True}, "embed_skip"),
    (save_sparsify, "layers.1.mlp", {"molt_n": 4}, "Unsupported setting: molt_n"),
    (save_sparsify, "layers.1.mlp", {"k": 0}, "positive integer 'k'"),
    (save_sparsify, "layers.1.attn", {}, "hookpoint: layers.1.attn"),
    (save_sparsify, "layers.7.mlp", {}, "There is no layer 7"),
    (save_clt_training, "layers.1.mlp", {"branch": "mxd", "mxd_encoder_activation": "relu"}, "activation: relu"),
    (save_clt_training, "layers.1.mlp", {"branch": "molt", "skip_connection": True}, "skip_connection of an MxD"),
    (save_clt_training, "layers.1.mlp", {"branch": "molt", "shift": 0.1}, "post_enc in sae.safetensors is not"),
    (save_saelens, "a", {"architecture": "gated"}, "architecture: gated"),
    (save_saelens, "a", {"normalize_activations": "layer_norm"}, "normalize_activations = 'layer_norm'"),
    (save_saelens, "a", {"apply_b_dec_to_input": True}, "apply_b_dec_to_input = True"),
    (save_saelens, "a", {"rescale_acts_by_decoder_norm": True}, "rescale_acts_by_decoder_norm = True"),
    (save_saelens, "a", {"something_new": 0.5}, "something_new = 0.5"),
    (save_saelens, "a", {"metadata": {"hook_head_index": 0}}, "hook_head_index = 0"),
    (save_saelens, "a", {"metadata": {"hook_name": "blocks.1.hook_mlp_in"}}, "input hook: blocks.1.hook_mlp_in"),
    (save_saelens, "a", {"metadata": {"hook_name_out": "blocks.2.hook_mlp_out"}}, "and writes blocks.2.hook_mlp_out"),
    (save_circuit_tracer, "a", {"config": f"{SET}feature_scale: 2.0\n"}, "feature_scale = 2.0"),
    (save_circuit_tracer, "a", {"config": f"{SET}activation: gelu\n"}, "activation: gelu"),
    (save_circuit_tracer, "a", {"config": SET.replace("mlp.hook_out", "blocks.2.mlp.hook_out")}, "own block, 1"),
    (save_circuit_tracer, "a", {"config": "model_kind: cross_layer_transcoder"}, "cross_layer_transcoder"),
    (save_circuit_tracer, "a", {"config": "transcoders: ['hf://x/y/z.npz']"}, "files of other repos"),
    (save_circuit_tracer, "a", {"config": "!!python/object/apply:os.getcwd []"}, "Invalid config file"),
    (save_circuit_tracer, "a", {"config": "[1, 2]"}, "must be a mapping"),
]


@pytest.mark.parametrize(("save", "name", "settings", "sentence"), REFUSED, ids=[row[-1] for row in REFUSED])
def test_unsupported_activations_and_architectures(
    place: Path, capsys: Capture, save: Callable[..., object], name: str, settings: dict[str, Any], sentence: str
) -> None:
    save(place / "theirs" / name, **settings)
    more = ["--layer", "1"] if save is save_circuit_tracer else []
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
    config = json.loads((place / "lm" / "config.json").read_text())
    (place / "lm" / "config.json").write_text(json.dumps(config | {"n_embd": 24, "n_head": 3}))
    assert "widths 16 -> 16" in refused(capsys, "layers.1.mlp")


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


TOKENS = [" The", "\n", "é", " fox", "▁x"]
EXAMPLE = {"tokens": TOKENS, "values": [0, 0, 0.5, 2.0, 0]}


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a compressed file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def write_batches(folder: Path) -> None:
    """Write one batch as SAEDashboard does."""
    activations = [
        {**EXAMPLE, "bin_min": -1, "bin_max": 2.0, "bin_contains": -1, "qualifying_token_index": 3},
        {**EXAMPLE, "bin_min": 0.5, "bin_max": 2.5, "bin_contains": 0.4, "qualifying_token_index": 3},
    ]
    feature = {"feature_index": 2, "frac_nonzero": 0.25, "n_prompts_total": 10, "n_tokens_in_prompt": 16}
    content = {"model_id": "gemma-2-2b", "layer": 5, "features": [{**feature, "activations": activations}]}
    folder.mkdir()
    (folder / "batch-0.json").write_text(json.dumps(content))


def write_export(folder: Path) -> None:
    """Write the same feature as Neuronpedia exports it."""
    ids = {"modelId": "gemma-2-2b", "layer": "5-res-16k", "index": "2"}
    write_lines(folder / "features" / "batch-0.jsonl.gz", [{**ids, "frac_nonzero": 0.25}])
    top, drawn = (-1, 2.0, -1), (0.5, 2.5, 0.4)
    rows = [{**ids, **EXAMPLE, "binMin": a, "binMax": b, "binContains": c} for a, b, c in (top, drawn)]
    write_lines(folder / "activations" / "batch-0.jsonl.gz", rows)


@pytest.mark.parametrize("write", [write_batches, write_export])
def test_examples_and_labels_are_stored(tmp_path: Path, write: Any) -> None:
    source = tmp_path / "theirs"
    write(source)
    write_lines(source / "explanations" / "batch-0.jsonl.gz", [{"index": "2", "description": "foxes"}])
    database = open_trainer_database(sqlite_url(tmp_path))
    run = save_features(read_features(source), "theirs", source, tmp_path, database)
    assert (run.config.language_model, run.config.layer, run.config.num_experts) == ("gemma-2-2b", 5, 3)
    assert token_texts(run.tokenizer, [1, 2, 3, 4, 5]) == TOKENS
    with Session(database) as session:
        expert = session.get_one(ExpertRecord, (1, 2))
        assert (expert.density, expert.max_activation) == (0.25, 2.0)
        examples = session.query(ExampleRecord).order_by(ExampleRecord.bin).all()
        assert [(it.bin, it.position, it.activation) for it in examples] == [(0, 3, 2.0), (1, 3, 2.0)]
        assert session.get_one(AutomaticLabelRecord, (1, 2, "neuronpedia")).label == "foxes"
    database.dispose()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"features": [{"feature_index": -1}]}', "index"),
        ('{"features": [{"feature_index": 1, "activations": [{"tokens": ["a"], "values": [1e400]}]}]}', "values"),
        ("{", "Damaged file"),
        ("[]", "Damaged file"),
        ('{"features": []}', "No features"),
    ],
)
def test_damaged_files(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "batch-0.json").write_text(content)
    with pytest.raises(UserError, match=sentence):
        read_features(tmp_path)
