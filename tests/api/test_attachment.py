"""Layers in a user's own loops: loaded, captured, steered, replaced and attached; the model is exactly restored."""

import copy
import json
import string
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from sqlalchemy import select, update
from sqlalchemy.orm import Session
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

import mxd
from mxd.api.loading import resolve_medians
from mxd.api.models import parse_edits
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import opened
from mxd.trainer.config.steering import Edit
from mxd.trainer.evaluation.jacobians import load_forward_derivatives
from mxd.trainer.language_model.mlp_hooks import like_weights
from mxd.trainer.language_model.model import cache_argument
from mxd.trainer.language_model.tokenizer import prompt_ids
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run_sets import weights_digest
from tests.api.conftest import User, one_family, user_model
from tests.helpers.runs import END, World, random_layer, run_of, small_world
from tests.trainer.inference.test_steering import UNITS, Reference

PROMPT = "the old fox"


def snapshot(model: nn.Module) -> Any:
    """Classes, modes, attributes and hooks of all modules; identity, values and flags of all parameters."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    modules = [
        (name, type(it), it.training, sorted(vars(it)), [list(getattr(it, hook)) for hook in hooks])
        for name, it in model.named_modules()
    ]
    return modules, [(name, id(it), it.requires_grad, it.tolist()) for name, it in model.named_parameters()]


def logits(user: User, model: PreTrainedModel | None = None) -> Tensor:
    with torch.no_grad():
        output: Tensor = (model or user.model)(**user.tokenizer(PROMPT, return_tensors="pt")).logits
    return output


def busiest(user: User) -> int:
    activations = user.run.activations(user.model, PROMPT)
    return int(activations.sum(dim=(0, 1)).to_dense().argmax())


def test_steering_agrees_with_the_dashboards_engine(user: User) -> None:
    edits: dict[int, Any] = {busiest(user): +6, 3: "ablate", 5: ("set", 2), 7: ("scale", 0.5)}
    sampling = {"max_tokens": 12, "temperature": 0, "repetition_penalty": 1.0}
    generation = mxd.generate(user.run, PROMPT, edits, model=user.model, tokenizer=user.tokenizer, **sampling)
    start = str(user.tokenizer.decode([0]))
    ids, model = user.tokenizer(start + PROMPT, return_tensors="pt"), cast(Any, user.model)
    with user.run.steer(user.model, edits):
        written = model.generate(**ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    own = str(user.tokenizer.decode(written[0, ids["input_ids"].shape[1] :], skip_special_tokens=False))
    assert own.startswith(generation.text("steered").removesuffix(start)[:8])
    assert "Δ log p" in generation._repr_html_()


def test_the_model_is_exactly_restored(user: User) -> None:
    before, plain = snapshot(user.model), logits(user)
    expert = busiest(user)
    uses: list[Callable[[], Any]] = [
        lambda: user.run.steer(user.model, {expert: 6}),
        lambda: user.run.steer(user.model, {expert: 6}, mode="replace"),
        lambda: user.run.replace(user.model),
        lambda: user.run.attach(user.model),
        lambda: user.run.attach(user.model, {expert: 6}, mode="residual"),
    ]
    for use in uses:
        with use():
            assert not torch.equal(logits(user), plain)
        assert torch.equal(logits(user), plain)
    with pytest.raises(ZeroDivisionError), user.run.steer(user.model, {expert: 6}):
        _ = 1 / 0
    mxd.route(user.run, PROMPT, model=user.model, tokenizer=user.tokenizer)
    mxd.trace(user.run, PROMPT, model=user.model, tokenizer=user.tokenizer, nodes=4)
    assert snapshot(user.model) == before


def test_replacing_computes_the_layer_and_steering_nests_in_it(user: User) -> None:
    expert = busiest(user)
    with user.run.replace(user.model):
        replaced = logits(user)
        with user.run.steer(user.model, {expert: 6}):
            nested = logits(user)
        assert torch.equal(logits(user), replaced)
    with user.run.steer(user.model, {expert: 6}, mode="replace"):
        torch.testing.assert_close(logits(user), nested)


def test_attached_parameters_train_and_copies_are_independent(user: User) -> None:
    attached = user.run.attach(user.model)
    with pytest.raises(mxd.UserError, match="already has an attached layer"):
        user.run.attach(user.model)
    names = [name for name, _ in user.model.named_parameters() if ".mxd." in name]
    assert names
    user.model(**user.tokenizer(PROMPT, return_tensors="pt")).logits.sum().backward()
    assert user.run.core.table.grad is not None
    user.model.zero_grad()
    twin = copy.deepcopy(user.model)
    for name, parameter in twin.named_parameters():
        if ".mxd." in name:
            parameter.data.zero_()
    assert not torch.equal(logits(user, twin), logits(user))
    attached.detach()
    attached.detach()
    assert not [name for name, _ in user.model.named_parameters() if ".mxd." in name]


def test_a_model_with_an_attached_layer_is_not_saved_without_it(user: User, tmp_path: Path) -> None:
    first, second = user.run.attach(user.model), mxd.load(user.run.run.folder)
    vars(second.run)["config"] = second.run.config.model_copy(update={"layer": 0})
    for handle in (first, second.attach(user.model)):
        for model in (user.model, cast(PreTrainedModel, user.model.base_model)):
            with pytest.raises(mxd.UserError, match="transformers would load the original MLP again"):
                model.save_pretrained(tmp_path / "model")
        handle.detach()
    user.model.save_pretrained(tmp_path / "model")
    loaded = type(user.model).from_pretrained(tmp_path / "model")
    torch.testing.assert_close(logits(user, loaded), logits(user))


def test_a_library_that_wraps_an_attached_model_keeps_its_wrapper(user: User) -> None:
    mlp = next(it for name, it in user.model.named_modules() if name.endswith(".1.mlp"))
    calls: list[Tensor] = []
    plain, attached = logits(user), user.run.attach(user.model)
    inner = mlp.forward

    def wrapper(x: Tensor) -> Tensor:
        calls.append(x)
        output: Tensor = inner(x)
        return output

    mlp.forward = wrapper  # as accelerate and nnsight do
    assert not torch.equal(logits(user), plain)
    attached.detach()
    assert torch.equal(logits(user), plain)
    assert len(calls) == 2
    del mlp.forward


def test_a_layer_of_another_model_is_an_error(user: User) -> None:
    other = user_model("falcon")
    other.config.num_hidden_layers = 99
    with pytest.raises(mxd.UserError, match="no list of 99 blocks"):
        user.run.steer(other, {1: 6})
    with pytest.raises(mxd.UserError, match="Invalid change of expert 1: 'louder'"):
        user.run.steer(user.model, {1: "louder"})  # type: ignore[dict-item]  # what users try
    with pytest.raises(mxd.UserError, match="experts 0 to 39"):
        user.run.steer(user.model, {99: 6})


NEW_TOKENS = 8


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = small_world(tmp_path_factory.mktemp("edits"))
    yield made
    made.database.dispose()


@pytest.fixture(scope="module")
def layer(world: World) -> mxd.Layer:
    run = run_of(world, "one", 1)
    vars(run).update(units=UNITS["one"], tokenizer=world.language_model.tokenizer)
    layer = mxd.Layer(run)
    layer.reference.model = world.language_model.module, world.language_model.tokenizer
    return layer


def written(world: World, ids_BT: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """Ids [B, T] of sampled continuations with their prompts, and log-probabilities of the new tokens [B, T, V]."""
    torch.manual_seed(0)
    output = world.language_model.module.generate(
        ids_BT,
        attention_mask=torch.ones_like(ids_BT),
        max_new_tokens=NEW_TOKENS,
        do_sample=True,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
        **settings,
    )
    return output.sequences, torch.stack(output.logits, dim=1).log_softmax(-1)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "edits",
    [
        ["3:add:8@generated", "7:ablate@prompt"],
        ["3:add:8@first:3", "7:set:5@when:3>0.1"],
        ["3:set:8@ramp:4", "7:scale:-9@fade:5@when:3<=0.4@when:9<=0"],
        ["3:add:8@until:e", "7:add:6"],
    ],
)
def test_conditions_equal_the_reference(world: World, layer: mxd.Layer, edits: list[str], use_cache: bool) -> None:
    ids_BT = torch.tensor([prompt_ids(world.language_model, text) for text in (PROMPT, PROMPT[::-1])])
    prompt = ids_BT.shape[1]
    with layer.steer(world.language_model.module, edits):
        written(world, ids_BT[:, :-1])  # an earlier text leaves no trace
        ids, log_p_BTV = written(world, ids_BT, use_cache=use_cache)
    for row_T, log_p_TV in zip(ids.tolist(), log_p_BTV, strict=True):
        reference = Reference(world, [layer.run], parse_edits(edits), row_T, prompt).log_probabilities()
        torch.testing.assert_close(log_p_TV, reference[prompt - 1 : -1], atol=1e-3, rtol=0)
    plain = written(world, ids_BT)[1]
    assert not torch.allclose(plain, log_p_BTV, atol=1e-3)


@pytest.mark.parametrize("use_cache", [True, False])
def test_beams_take_their_histories_along(world: World, layer: mxd.Layer, use_cache: bool) -> None:
    ids_BT = torch.tensor([prompt_ids(world.language_model, text) for text in (PROMPT, PROMPT[::-1])])
    prompt, model = ids_BT.shape[1], world.language_model.module
    beams = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 0.0, "max_new_tokens": NEW_TOKENS}
    settings: dict[str, Any] = {"attention_mask": torch.ones_like(ids_BT), "pad_token_id": 0, "use_cache": use_cache}
    settings |= beams | {"output_scores": True, "return_dict_in_generate": True}
    plain = model.generate(ids_BT, **settings).sequences[:, prompt:]
    letters = sorted(set(world.language_model.tokenizer.decode(plain.flatten())) & set(string.printable))
    edits = [f"{expert}:add:3@until:{json.dumps(letter)}" for expert, letter in enumerate(letters)]
    with layer.steer(model, edits):
        output = model.generate(ids_BT, **settings)
    for row_T, score in zip(output.sequences, output.sequences_scores, strict=True):
        log_p_TV = Reference(world, [layer.run], parse_edits(edits), row_T.tolist(), prompt).log_probabilities()
        log_p_T = log_p_TV[prompt - 1 : -1].gather(1, row_T[prompt:, None]).squeeze(1)
        torch.testing.assert_close(score, log_p_T.sum(), atol=1e-3, rtol=0)


def test_a_prompt_may_be_cached_in_parts(world: World, layer: mxd.Layer) -> None:
    ids_1T = torch.tensor([prompt_ids(world.language_model, PROMPT)])
    model = world.language_model.module
    with torch.no_grad(), layer.steer(model, ["3:add:8@prompt"]):
        together = model(ids_1T).logits[0, -1]
        cache = DynamicCache()
        model(ids_1T[:, :5], use_cache=True, **{cache_argument(model): cache})
        parts = model(ids_1T[:, 5:], **{cache_argument(model): cache}).logits[0, -1]
    torch.testing.assert_close(parts, together, atol=1e-4, rtol=0)


def test_a_pass_that_continues_a_text_of_unknown_length_is_an_error(world: World, layer: mxd.Layer) -> None:
    ids_1T, model = torch.tensor([prompt_ids(world.language_model, PROMPT)]), world.language_model.module
    with layer.steer(model, ["3:add:8@first:3"]):
        model(ids_1T)
        with pytest.raises(mxd.UserError, match=rf"mask has {ids_1T.shape[1]} tokens, the cache 0 and the input 1\."):
            model(ids_1T[:, -1:], attention_mask=torch.ones_like(ids_1T))
        with pytest.raises(mxd.UserError, match="need input_ids or inputs_embeds"):
            model(attention_mask=torch.ones_like(ids_1T))


def test_invalid_edits_are_one_line_errors(world: World, layer: mxd.Layer) -> None:
    model = world.language_model.module
    for edit, message in {
        "3:louder": r"Invalid edit: '3:louder'\. Write EXPERT:scale",
        "3:ablate@when:4>median": r'Run mxd\.index\("one"\)',
    }.items():
        with pytest.raises(mxd.UserError, match=message):
            layer.steer(model, [edit])
    with layer.steer(model, ["3:add:8@first:3"]), pytest.raises(mxd.UserError, match="passed to steer"):
        model.model(torch.tensor([[1, 2]])) if hasattr(model, "model") else model.transformer(torch.tensor([[1, 2]]))
    assert not model._forward_pre_hooks


def test_medians_are_read_from_the_index(user: User) -> None:
    (edit,) = resolve_medians(user.run.run, (Edit.model_validate("3:ablate@when:3>median"),))
    assert edit.when is not None
    assert 0 <= float(edit.when.gates[0].level) < 1


def test_a_layer_on_another_device_than_the_model_warns() -> None:
    layer = random_layer("mxd")
    same = like_weights(torch.ones(2, 12, dtype=torch.float64), layer)
    assert same.dtype == torch.float32
    with pytest.warns(UserWarning, match=r"layer is on meta, the model on cpu.* Move the layer"):
        assert like_weights(torch.ones(2, 12), layer.to("meta")).device == torch.device("meta")


SHORT, LONG = "the fox", "a very old dog sang."


@one_family
def test_one_loader_takes_names_and_folders(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = user.run.save_pretrained(tmp_path / "copy")
    monkeypatch.setenv("MXD_DATA", str(user.data))
    x = torch.randn(3, 16)
    for source in ("mine", str(folder), folder):
        for loaded in (mxd.load(source), mxd.MxD.from_pretrained(source)):
            assert isinstance(loaded, mxd.MxD)
            assert torch.equal(loaded(x), user.run(x))
    with pytest.raises(mxd.UserError, match="'mine' is a mxd, not a Transcoder"):
        mxd.Transcoder.from_pretrained("mine")
    with pytest.raises(mxd.UserError, match=r"Unknown run 'mein'\. Did you mean 'mine'"):
        mxd.load("mein")
    with pytest.raises(mxd.UserError, match=r"has no revisions\. Leave out revision="):
        mxd.load(folder, revision="v2")


@one_family
def test_the_output_is_the_sum_of_the_experts(user: User) -> None:
    layer = user.run
    assert isinstance(layer, mxd.MxD)
    x = torch.randn(2, 5, 16)
    y, a, z = layer(x), layer.encode(x), layer.hidden(x)
    assert y.shape == (2, 5, 16)
    assert a.shape == (2, 5, 40)
    assert int((a > 0).sum(dim=-1).max()) <= 4
    experts = torch.stack([layer.expert_matrix(n) for n in range(40)])
    without = layer.decode(x, torch.zeros_like(a))
    torch.testing.assert_close(torch.einsum("btn,bth,nho->bto", a, z, experts) + without, y)
    torch.testing.assert_close(layer.decode(x, a), y)
    core = layer.core
    mixed = (a @ core.scaling_NO - layer.mixing_centre) * (z @ core.decoder.weight.T) + core.output_bias
    torch.testing.assert_close(mixed, y)  # the equation of the README
    assert float(layer.mixing_centre.abs().max()) > 0
    torch.testing.assert_close(layer.decode(x, a.to_sparse()), y)
    torch.testing.assert_close(layer.decode(x, -a), 2 * without - y)  # edits may be negative
    assert layer(x.double()).dtype == torch.float64
    assert not y.is_inference()


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_activation(user: User, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user.tokenizer, "padding_side", side)
    batch = user.tokenizer([END + SHORT, END + LONG], return_tensors="pt", padding=True)
    padded = user.run.activations(user.model, batch)
    assert padded.is_sparse
    assert not padded.is_inference()
    assert not padded.requires_grad
    assert padded.shape == (2, 1 + len(LONG), 40)
    for row, text in enumerate((SHORT, LONG)):
        alone = user.run.activations(user.model, user.tokenizer(END + text, return_tensors="pt")["input_ids"])
        kept = padded.to_dense()[row][batch["attention_mask"][row].bool()]
        torch.testing.assert_close(kept, alone.to_dense()[0], rtol=1e-4, atol=1e-5)
    assert float(padded.to_dense()[batch["attention_mask"] == 0].abs().sum()) == 0


def test_texts_get_the_start_token_and_batches_without_it_a_warning(user: User) -> None:
    """The values equal plain transformers and the layer's gate on the start token and the text."""
    ids_1T = torch.tensor([[0, *user.tokenizer(LONG)["input_ids"]]])
    seen: list[Tensor] = []
    mlp = next(it for name, it in user.model.named_modules() if name.endswith(".1.mlp"))
    handle = mlp.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        user.model(ids_1T)
    handle.remove()
    expected = user.run.encode(seen[0]).detach()
    for batch in (LONG, [LONG], user.run.tokenize(LONG), ids_1T):
        torch.testing.assert_close(user.run.activations(user.model, batch).to_dense(), expected)
    with pytest.warns(UserWarning, match=r"1 of 2 rows do not begin with the start token '<\|endoftext\|>'"):
        user.run.activations(user.model, torch.tensor([[0, 5, 6], [5, 6, 7]]))


@one_family
def test_empty_inputs_give_empty_outputs_and_inactive_experts_have_gradients(user: User) -> None:
    assert user.run(torch.zeros(0, 16)).shape == (0, 16)
    assert user.run.encode(torch.zeros(2, 0, 16)).shape == (2, 0, 40)
    assert user.run.decode(torch.zeros(2, 0, 16), torch.zeros(2, 0, 40)).shape == (2, 0, 16)
    assert user.run(torch.zeros(16)).shape == (16,)
    x = torch.randn(3, 16)
    a = user.run.encode(x).detach().requires_grad_(True)
    user.run.decode(x, a).sum().backward()
    assert a.grad is not None
    assert bool((a.grad[a == 0] != 0).any())


@one_family
def test_torch_func_transforms_layers(user: User) -> None:
    """Jacobians and batches equal those of plain autograd, row by row."""
    load_forward_derivatives()  # without torch's warning about its own code
    layer, x, vmap = user.run, torch.randn(3, 16), torch.func.vmap
    close = partial(torch.testing.assert_close, atol=1e-5, rtol=1e-4)
    exact = torch.stack([torch.autograd.functional.jacobian(layer, row) for row in x])
    close(vmap(torch.func.jacrev(layer))(x), exact)
    close(vmap(torch.func.jacfwd(layer))(x), exact)
    close(vmap(layer)(x), layer(x))
    close(vmap(layer.encode)(x), layer.encode(x))
    close(vmap(layer.decode)(x, layer.encode(x)), layer(x))
    names = dict(layer.named_parameters())
    layer.zero_grad()
    gradients = torch.func.grad(lambda weights: torch.func.functional_call(layer, weights, (x,)).square().sum())(names)
    layer(x).square().sum().backward()
    for name, parameter in names.items():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, atol=1e-4, rtol=1e-3)
    layer.zero_grad()


@one_family
def test_changed_layers_are_saved_as_they_are(user: User, tmp_path: Path) -> None:
    layer, x = mxd.load(user.run.run.folder), torch.randn(5, 16)
    before = layer(x).detach()
    layer(x).square().sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    tuned = mxd.load(layer.save_pretrained(tmp_path / "tuned"))
    assert not torch.allclose(layer(x), before)
    assert torch.equal(tuned(x), layer(x))
    assert tuned.name == "tuned"
    narrow = mxd.load(layer.at_k(2).save_pretrained(tmp_path / "narrow"))
    assert narrow.config.k == narrow.run.config.k == int((narrow.encode(x) > 0).sum(dim=1).max()) == 2
    assert torch.equal(narrow(x), layer.at_k(2)(x))
    same = user.run.save_pretrained(tmp_path / "same")
    assert (same / "layer.safetensors").read_bytes() == (user.run.run.folder / "layer.safetensors").read_bytes()
    for changed in (layer, user.run.at_k(2)):
        with pytest.raises(mxd.UserError, match="is not the one that run 'mine' has on disk"):
            mxd.index(changed, [LONG] * 300, tokens="2k", progress=False)


def test_another_model_of_equal_widths_is_a_warning_and_a_batch_without_ids_an_error(user: User) -> None:
    other = user_model("mistral")
    with pytest.warns(UserWarning, match="'mine' was trained on .*, and this model is 'MistralForCausalLM'"):
        user.run.activations(other, LONG)
    other.name_or_path = user.run.run.config.language_model
    user.run.activations(other, LONG)
    with pytest.raises(mxd.UserError, match="no tensor of token ids"):
        user.run.activations(user.model, user.tokenizer(LONG))
    ids = user.tokenizer(LONG, return_tensors="pt")["input_ids"]
    embeddings = user.model.get_input_embeddings()(ids).detach().requires_grad_(True)
    activations = user.run.activations(user.model, {"inputs_embeds": embeddings}, requires_grad=True)
    (gradient,) = torch.autograd.grad(activations.to_dense()[0, -1].sum(), embeddings)
    assert float(gradient.abs().sum()) > 0


@one_family
def test_an_expert_has_the_label_of_the_dashboard_and_a_table(user: User) -> None:
    expert = int(user.run.activations(user.model, LONG).sum(dim=(0, 1)).to_dense().argmax())
    with opened(sqlite_url(user.data)) as engine, Session(engine) as session, session.begin():
        set_label(session, "mine", expert, "my own label")
        session.execute(update(AutomaticLabelRecord).values(balanced_accuracy=0.5, test_examples=10))
        others = select(AutomaticLabelRecord.expert).where(AutomaticLabelRecord.expert != expert)
        other = session.scalars(others).first()
    assert other is not None
    assert str(user.run.expert(other).label).endswith(", weak label")
    info, examples = user.run.expert(expert), user.run.examples(expert)
    assert info.label == "my own label"
    assert info.examples == examples[:8]
    table = examples.to_pandas()
    assert list(table.columns) == ["activation", "token", "position", "text", "tokens", "activations"]
    assert table["activation"].is_monotonic_decreasing
    assert table["activation"][0] == info.max_activation
    assert 'class="t s9 peak"' in examples._repr_html_()
    shown = user.run.show(expert)._repr_html_()
    assert "<h1>my own label</h1>" in shown
    assert f"mxd experts mine {expert} --examples 12" in shown
    with pytest.raises(mxd.UserError, match="experts 0 to 39"):
        user.run.expert(40)


@one_family
def test_shown_texts_have_labels_the_weights_and_the_command(user: User, tmp_path: Path) -> None:
    routing = mxd.route(user.run, LONG, model=user.model)
    heat_map = user.run.show(LONG, model=user.model)
    page = heat_map.save(tmp_path / "page.html").read_text("utf-8")
    assert weights_digest([user.run.run]) in page
    assert f"mxd route mine &#x27;{LONG}&#x27;" in page
    assert all(f"<b>{expert}</b>" in page for expert in routing.strongest(5))
    pair = user.run.show(SHORT, {3: +4}, model=user.model, max_tokens=3, seed=5)
    assert all(flag in pair.markdown() for flag in ("--edit 3:add:4 --max-tokens 3", "--seed 5"))
    assert pair.title.startswith("Steered with 3")
    unlabelled = mxd.load(user.run.save_pretrained(tmp_path / "copy")).show(LONG, model=user.model)
    assert weights_digest([user.run.run]) in unlabelled.html()


@one_family
def test_reading_creates_no_file(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXD_DATA", str(tmp_path / "empty"))
    before = sorted(user.data.rglob("*"))
    copy = mxd.load(user.run.save_pretrained(tmp_path / "copy"))
    user.run.expert(3)
    with pytest.raises(mxd.UserError, match="No database at"):
        copy.expert(3)
    assert sorted(user.data.rglob("*")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
