"""Methods, penalties and frozen parts of the lab, and privacy fine-tuning."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.config import layer as registered
from mxd.trainer.config.layer import Encoder, Method, MethodTraits, Mixing, methods
from mxd.trainer.config.training import FinetuneConfig, RegularizationConfig, TrainConfig
from mxd.trainer.data.activations import LiveActivations, StreamSpec
from mxd.trainer.data.sequences import sequences
from mxd.trainer.errors import UserError
from mxd.trainer.evaluation.metrics import constant_mixing_fit
from mxd.trainer.experimental import ExperimentalConfig, ExperimentalTrainConfig, ProtectConfig, ProtectedTrainConfig
from mxd.trainer.experimental.layers import HiddenMxD, TensorRingMxD
from mxd.trainer.experimental.protect import (
    OVERLAP_TOKENS,
    RESULT_FILE,
    Passage,
    ReplacementModel,
    combine_gradients,
    drop_overlapping,
    encode,
    kl_from_uniform,
    protect,
    read_passages,
    variations_of,
    write_outcome,
)
from mxd.trainer.experimental.training import (
    ExperimentalLayerTrainer,
    GaussianInputs,
    check_experimental,
    constant_share,
    original_mlp,
    output_similarity,
    train_experimental,
)
from mxd.trainer.language_model.model import MlpActivations
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.layers import variants
from mxd.trainer.layers.variants import Transcoder, build_layer
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import Run, runs_folder
from mxd.trainer.storage.run_sets import names_of
from mxd.trainer.training.finetune import new_run_configs
from mxd.trainer.training.initialization import loss_weights
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.runs import (
    World,
    layer_config,
    random_layer,
    routing_to,
    stop_after,
    sure_language_model,
    tiny_language_model,
)


def test_the_penalty_is_the_mean_squared_cosine_of_different_experts() -> None:
    table_NO = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0], [9.0, 9.0]])
    assert output_similarity(routing_to([[0, 1]]), table_NO) == pytest.approx(1)
    assert output_similarity(routing_to([[0, 2]]), table_NO) == pytest.approx(0)
    assert output_similarity(routing_to([[0, 1], [2, 2]]), table_NO) == pytest.approx(1 / 3)


def experimental_config(world: World, name: str = "small", **changes: Any) -> ExperimentalTrainConfig:
    settings = {name: changes.pop(name) for name in ExperimentalConfig.model_fields if name in changes}
    config = world.config(name, **changes).model_dump()
    return ExperimentalTrainConfig.model_validate({**config, "experimental": settings})


def sample_of(world: World, config: TrainConfig) -> MlpActivations:
    """Activations that starting values are computed from."""
    return next(LiveActivations(world.language_model).buffers(StreamSpec.from_configs([config]))).captured[config.layer]


def train(world: World, config: ExperimentalTrainConfig, callbacks: Callbacks = NO_CALLBACKS) -> Run:
    train_experimental([config], world.data, world.database, world.language_model, resume="if-any", callbacks=callbacks)
    return Run.load(config.name, world.data)


def test_a_method_of_another_module_is_trained_and_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="Unknown method\\. Did you mean 'mxd'"):
        TrainConfig.from_keywords({}, {**world.config().model_dump(), "method": "mxdd"})
    monkeypatch.setattr(registered, "_TRAITS", dict(registered._TRAITS))
    monkeypatch.setattr(variants, "_CLASSES", dict(variants._CLASSES))
    registered.register_method("foreign", MethodTraits("a method of another package", has_top_k=False))
    variants.register_layers("foreign", Transcoder)
    assert "foreign" in methods("core")
    run = world.train(method="foreign", init="random")
    assert isinstance(run.layer, Transcoder)
    assert run.config.method == "foreign"


def hidden_trainer(world: World, weight: float) -> tuple[ExperimentalLayerTrainer, MlpActivations]:
    config = experimental_config(world, method="hidden-mxd", constant_weight=weight)
    sample = sample_of(world, config)
    return ExperimentalLayerTrainer.create(config, world.language_model, 40, sample=sample), sample


def test_the_share_of_the_best_constant_is_that_of_the_evaluation(world: World) -> None:
    trainer, sample = hidden_trainer(world, 1.0)
    hidden_TH = trainer.layer.dense_output(sample.input_TI).detach()
    fit = constant_mixing_fit(trainer.layer)
    assert fit is not None
    fit.add(hidden_TH, sample.output_TO)
    fitted_TO = fit.best().output(trainer.layer, hidden_TH).detach()
    weight_T1 = loss_weights(sample.output_TO)
    centred_TO = sample.output_TO - (weight_T1 * sample.output_TO).sum(dim=0)
    error, whole = ((weight_T1 * of.square()).sum() for of in (sample.output_TO - fitted_TO, centred_TO))
    share = constant_share(hidden_TH, trainer.layer.get_parameter("decoder.weight").detach(), sample.output_TO)
    assert 0.05 < share < 1
    assert float(share) == pytest.approx(float(1 - error / whole), abs=1e-3)


def test_the_penalty_lowers_the_share_of_the_best_constant(world: World) -> None:
    shares = []
    for weight in (0.0, 3.0):
        trainer, sample = hidden_trainer(world, weight)
        for _step in range(40):
            trainer.train_step(sample)
        with torch.no_grad():
            hidden_TH = trainer.layer.dense_output(sample.input_TI)
            decoder_OH = trainer.layer.get_parameter("decoder.weight")
            shares.append(float(constant_share(hidden_TH, decoder_OH, sample.output_TO)))
    assert shares[1] < shares[0] / 2


FROZEN = {"gate": {"gate.weight", "gate.bias"}, "table": {"scaling_NO"}}


@pytest.mark.parametrize("freeze", ["gate", "table", "both"])
@pytest.mark.parametrize("init", ["examples", "random"])
def test_frozen_parameters_keep_every_bit_and_the_others_are_trained(world: World, freeze: str, init: str) -> None:
    config = experimental_config(world, freeze=freeze, init=init)
    start = ExperimentalLayerTrainer.create(config, world.language_model, 24, sample=sample_of(world, config))
    first = start.layer.state_dict()
    last = train(world, config).layer.state_dict()
    frozen = FROZEN["gate"] | FROZEN["table"] if freeze == "both" else FROZEN[freeze]
    assert {name for name, value in first.items() if torch.equal(value, last[name])} == frozen


@pytest.mark.parametrize(
    "changes",
    [
        {"freeze": "gate"},
        {"inputs": "gaussian"},
        {"freeze": "both", "method": "transcoder"},
        {"diversity_weight": 0.01, "regularization": RegularizationConfig(k_spread=0.5, load_balance_weight=0.01)},
    ],
)
def test_a_resumed_run_is_bit_identical(world: World, changes: dict[str, Any]) -> None:
    train(world, experimental_config(world, **changes))
    train(world, experimental_config(world, "again", **changes), stop_after(10))
    resumed = train(world, experimental_config(world, "again", **changes))
    assert isinstance(resumed.config, ExperimentalTrainConfig)
    assert resumed.config.experimental.diversity_weight == changes.get("diversity_weight", 0.0)
    world.check_same_weights("small", "again")


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_gaussian_inputs_have_the_moments_of_the_text_and_the_outputs_of_the_mlp(family: str) -> None:
    language_model = tiny_language_model(family)
    ids_BT = torch.randint(50, (64, 16), generator=torch.Generator().manual_seed(0))
    text = language_model.capture(1, ids_BT)
    torch.testing.assert_close(original_mlp(language_model, 1)(text.input_TI), text.output_TO, atol=1e-5, rtol=1e-4)
    inputs = GaussianInputs.like(text.input_TI, language_model, 1)
    drawn = inputs.sample(200_000, seed=0, step=0)
    assert (drawn.input_TI.mean(dim=0) - text.input_TI.mean(dim=0)).norm() < 0.02 * text.input_TI.norm(dim=1).mean()
    expected_II, actual_II = torch.cov(text.input_TI.T), torch.cov(drawn.input_TI.T)
    assert (actual_II - expected_II).norm() < 0.02 * expected_II.norm()
    torch.testing.assert_close(inputs.mlp(drawn.input_TI[:8]), drawn.output_TO[:8], atol=1e-5, rtol=1e-4)
    assert torch.equal(inputs.sample(4, seed=0, step=3).input_TI, inputs.sample(4, seed=0, step=3).input_TI)
    assert not torch.equal(inputs.sample(4, seed=0, step=3).input_TI, inputs.sample(4, seed=0, step=4).input_TI)


def test_unsupported_combinations(world: World) -> None:
    refused: dict[str, dict[str, Any]] = {
        "A molt has no expert rows": {"method": "molt", "diversity_weight": 0.1},
        "does not mix hidden units": {"constant_weight": 1.0},
        "Use --init=examples": {"inputs": "gaussian", "init": "random"},
    }
    for sentence, changes in refused.items():
        with pytest.raises(UserError, match=sentence):
            check_experimental(experimental_config(world, **changes), is_single_process=True)
    molt = experimental_config(world, method="molt", freeze="table")
    with pytest.raises(UserError, match="Use --freeze=gate"):
        ExperimentalLayerTrainer.create(molt, world.language_model, total_steps=4)
    with pytest.raises(UserError, match="Run without torchrun"):
        check_experimental(experimental_config(world, diversity_weight=0.1), is_single_process=False)


def test_fine_tuning_keeps_the_settings_of_the_core(world: World) -> None:
    run = train(world, experimental_config(world, diversity_weight=0.01))
    (tuned,) = new_run_configs([run], FinetuneConfig(text=world.text, tokens=512))
    assert type(tuned) is TrainConfig
    assert (tuned.parents, tuned.method, tuned.k) == (("small",), "mxd", world.config().k)


R = 3


@pytest.mark.parametrize("encoder", ["mlp", "glu"])
def test_tensor_ring_output_is_the_trace_of_the_cores(encoder: Encoder) -> None:
    layer, x_TI = random_layer("tensor-ring-mxd", encoder=encoder, rank=R), torch.randn(7, 12)
    assert isinstance(layer, TensorRingMxD)
    output = layer(x_TI)
    activations_TN = torch.zeros(7, 33).scatter_add(1, output.routing.indices_TK, output.routing.activations_TK)
    first_NPQ = layer.scaling_NO.view(33, R, R)
    second_QSH = layer.decoder.weight.view(R, R, 20)
    third_OPS = layer.up.weight.view(10, R, R)
    expected_TO = torch.einsum(
        "tn,npq,qsh,th,ops->to", activations_TN, first_NPQ, second_QSH, layer.encode(x_TI), third_OPS
    )
    torch.testing.assert_close(output.output_TO, expected_TO + layer.output_bias, atol=1e-4, rtol=1e-4)


def test_a_centred_layer_at_its_centre_outputs_only_the_bias() -> None:
    layer, x_TI = random_layer("hidden-mxd", mixing="centred"), torch.randn(7, 12)
    assert isinstance(layer, HiddenMxD)
    centre_TH = layer.mixing_centre_M.normal_().expand(7, -1)
    torch.testing.assert_close(layer.decode_mixed(layer.dense_output(x_TI), centre_TH), layer.output_bias.expand(7, -1))


@pytest.mark.parametrize(
    ("method", "rank"), [("low-rank-mxd", 4), ("tensor-ring-mxd", 2), ("autoencoder", None), ("molt", 8)]
)
def test_training_and_saving(world: World, method: Method, rank: int | None) -> None:
    layer = world.train(method=method, num_experts=None).layer
    assert (layer.method, layer.config.k, layer.config.rank) == (method, 4, rank)
    assert not isinstance(layer, TensorRingMxD) or layer.side == rank
    if rank:
        with pytest.raises(UserError, match="needs a rank"):
            build_layer(layer_config(method, rank=None))


@pytest.mark.parametrize("mixing", ["paper", "centred"])
def test_training_and_saving_of_hidden_mixing(world: World, mixing: Mixing) -> None:
    layer = world.train(method="hidden-mxd", num_experts=None, mixing=mixing).layer
    assert isinstance(layer, HiddenMxD)
    assert layer.config.mixing == mixing
    assert bool((layer.mixing_bias_H if mixing == "paper" else layer.mixing_centre_M).abs().sum() > 0)
    assert layer.scaling_NO.shape == (layer.config.num_experts, layer.config.hidden_width)


@given(st.integers(0, 2**31), st.integers(2, 40), st.floats(0.1, 20))
def test_the_loss_is_a_kl_divergence(seed: int, vocabulary: int, scale: float) -> None:
    logits_PV = scale * torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    p_PV = logits_PV.softmax(-1)
    uniform = 1 / vocabulary
    from_uniform_P = (uniform * (math.log(uniform) - p_PV.log())).sum(-1)
    assert torch.allclose(kl_from_uniform(logits_PV), from_uniform_P)
    flat_PV = torch.full((1, vocabulary), scale, dtype=torch.float64)
    assert kl_from_uniform(flat_PV).item() == pytest.approx(0, abs=1e-9)
    assert (kl_from_uniform(logits_PV) > -1e-9).all()


@given(st.integers(0, 2**31))
def test_combined_gradients_do_not_conflict(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, other = ([torch.randn(3, 2, generator=generator), torch.randn(4, generator=generator)] for _ in range(2))
    combined = torch.cat([part.flatten() for part in combine_gradients(first, other)])
    a, b = (torch.cat([part.flatten() for part in parts]) for parts in (first, other))
    if a @ b >= 0:
        assert torch.allclose(combined, a + b)
    else:
        assert combined @ a >= -1e-4
        assert combined @ b >= -1e-4


FOX = "the red fox ran and the old dog sat very very still and sang"


def test_read_passages_from_txt_and_jsonl(tmp_path: Path) -> None:
    text, objects = tmp_path / "passages.txt", tmp_path / "passages.jsonl"
    text.write_text(f"\n{FOX}\nand on\n \n\n\nthe dog sang\n\nthe dog sang\n")
    assert read_passages(text) == [Passage(f"{FOX}\nand on"), Passage("the dog sang")]
    objects.write_text(json.dumps({"text": FOX}) + "\n\n" + json.dumps({"text": "a", "paraphrases": ["b", "c"]}))
    assert read_passages(objects) == [Passage(FOX), Passage("a", ("b", "c"))]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b" \n\n \n", "holds no passages"),
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.csv", b"text", "is neither .txt nor .jsonl"),
        ("a.jsonl", b'{"text": "a"}\nnothing', "Line 2 of"),
        ("a.jsonl", b'{"text": "a", "paraphrases": [1]}', "is not a passage"),
        ("a.jsonl", b'{"text": "a", "other": 1}', "is not a passage"),
        ("a.jsonl", b"[" * 100_000, "is not a passage"),
    ],
)
def test_invalid_passage_files(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_passages(path)


def test_scored_predictions() -> None:
    language_model = tiny_language_model()
    texts = [FOX, "the dog sang and sang"]
    encoded = encode(language_model, texts, skip_tokens=2)
    for row, is_scored_T, text in zip(encoded.ids_ST, encoded.is_scored_ST, texts, strict=True):
        ids = prompt_ids(language_model, text)
        assert row[: len(ids)].tolist() == ids
        assert is_scored_T.nonzero().flatten().tolist() == list(range(2, len(ids) - 1))
    assert encoded.predictions == int(encoded.is_scored_ST.sum())
    with pytest.raises(UserError, match="Make it longer"):
        encode(language_model, ["red"], skip_tokens=200)


def test_variations_of_passages() -> None:
    variations = variations_of([Passage("The Fox ran over the hill", ("A fox crossed it",)), Passage("1 2 3")])
    assert variations == {
        "given": ["A fox crossed it"],
        "later beginning": ["ran over the hill", "2 3"],
        "swapped case": ["tHE fOX RAN OVER THE HILL"],
    }
    assert variations_of([Passage("x")]) == {"swapped case": ["X"]}


@given(st.integers(0, 30), st.booleans())
def test_overlapping_sequences_are_dropped(place: int, long_enough: bool) -> None:
    language_model = tiny_language_model()
    passages = encode(language_model, [FOX], skip_tokens=0)
    ids = prompt_ids(language_model, FOX)[1:]
    part = ids[2 : 2 + OVERLAP_TOKENS - (0 if long_enough else 1)]
    other = torch.full((2, 40), ids[0])
    other[1, place : place + len(part)] = torch.tensor(part)
    assert len(drop_overlapping(other, passages)) == (1 if long_enough else 2)


PASSAGES = (
    Passage("the red fox sang and the blue dog sang", ("and so sang the fox that was red",)),
    Passage("a very very old dog sat and the fox ran"),
    Passage("blue and red and old and blue sat the dog"),
)
MOVED = {"scaling_NO", "gate.weight", "gate.bias", "mixing_centre_M"}


@pytest.fixture(scope="module")
def trained(shared: World) -> World:
    """MxDs of layers 1 and 2, and a transcoder."""
    world = replace(shared, language_model=sure_language_model())
    for name, changes in (("one", {}), ("two", {"layer": 2}), ("other", {"layer": 0, "method": "transcoder"})):
        world.train(name, **changes)
    return world


def config(**changes: Any) -> ProtectConfig:
    settings = {"steps": 8, "learning_rate": 0.01, "batch_tokens": 64, "check_every": 2, "attack_steps": 2}
    return ProtectConfig.model_validate({"max_added_loss": 5.0} | settings | changes)


def protected(
    world: World,
    settings: ProtectConfig,
    runs: Sequence[str] = ("one",),
    pattern: str = "{run}-private",
    callbacks: Callbacks = NO_CALLBACKS,
) -> tuple[ReplacementModel, dict[str, Any]]:
    loaded = [Run.load(name, world.data) for name in runs]
    names = names_of(loaded, pattern)
    others = sequences(world.text, world.language_model.tokenizer, 1024, 0, "as-is")
    text = torch.from_numpy(np.stack(list(others))).long()
    return protect(world.language_model, loaded, names, PASSAGES, text, settings, callbacks=callbacks)


def test_only_c_and_the_gate_are_trained_and_the_centre_follows(trained: World) -> None:
    files = {path: path.read_bytes() for path in runs_folder(trained.data).glob("*/*.*") if path.is_file()}
    original = {name: value.clone() for name, value in trained.language_model.module.state_dict().items()}
    settings, runs = config(), [Run.load("one", trained.data)]
    model, result = protected(trained, settings)
    write_outcome(runs, model, result, settings, trained.data, trained.database)
    before, after = (trained.weights(name) for name in ("one", "one-private"))
    assert {name for name in before if not torch.equal(before[name], after[name])} == MOVED
    now = trained.language_model.module.state_dict()
    assert all(torch.equal(value, now[name]) for name, value in original.items())
    assert all(path.read_bytes() == content for path, content in files.items())
    first, last = result["protected"]["before"], result["protected"]["after"]
    assert last["confidence_distance"] < first["confidence_distance"]
    assert last["entropy"] > first["entropy"]
    assert list(result["variations"]) == ["given", "later beginning", "swapped case"]
    assert result["relearning"]["passages"] == 1
    new_run = Run.load("one-private", trained.data)
    assert isinstance(new_run.config, ProtectedTrainConfig)
    assert (new_run.config.parents, new_run.config.privacy) == (("one",), settings)
    assert {record.name: record.status for record in trained.rows(RunRecord)}["one-private"] == "finished"
    assert json.loads((new_run.folder / RESULT_FILE).read_text()) == result
    written = "".join(path.read_text() for path in new_run.folder.glob("*.json"))
    assert not any(passage.text in written for passage in PASSAGES)
    with pytest.raises(UserError, match="Run 'one-private' already exists"):
        write_outcome(runs, model, result, settings, trained.data, trained.database)


def test_the_best_step_of_several_layers_is_the_least_confident_within_the_loss_limit(trained: World) -> None:
    settings = config(steps=12, max_added_loss=0.02)
    _, result = protected(trained, settings, runs=("one", "two"))
    assert result["runs"] == ["one-private", "two-private"]
    allowed = [one for one in result["eval_points"] if one["loss_increase"] <= 0.02]
    least = min(allowed, key=lambda one: one["protected"]["confidence_distance"])
    assert result["best_step"] == least["step"]
    assert result["protected"]["after"] == least["protected"]


def test_cancelling_writes_nothing(trained: World) -> None:
    runs_before = sorted(runs_folder(trained.data).iterdir())
    with pytest.raises(UserError, match="nothing was written"):
        protected(trained, config(), callbacks=stop_after(3))
    assert sorted(runs_folder(trained.data).iterdir()) == runs_before


def test_the_gradient_equals_finite_differences(trained: World) -> None:
    model = ReplacementModel.from_runs(trained.language_model, [Run.load("one", trained.data)])
    text = encode(trained.language_model, [passage.text for passage in PASSAGES], skip_tokens=2)
    _, gradient = model.gradient(text, kl_from_uniform, 0.75)
    place = next(place for place, one in enumerate(model.trainable_parameters()) if one is model.layers[1].table)
    size, direction = 0.005, gradient[place] / gradient[place].norm()
    ends = []
    for sign in (1, -1):
        changed = model.copy()
        with torch.no_grad():
            changed.trainable_parameters()[place].add_(sign * size * direction)
        ends.append(changed.gradient(text, kl_from_uniform, 0.75)[0])
    slope = 0.75 * (ends[0] - ends[1]) / (2 * size)
    assert slope == pytest.approx(gradient[place].norm().item(), rel=0.02)
