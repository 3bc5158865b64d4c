"""A trained layer: loading, its equations, the activations of a batch, and what the index knows of an expert."""

from functools import partial
from pathlib import Path

import pytest
import torch
from sqlalchemy import select, update
from sqlalchemy.orm import Session
from torch import Tensor

import mxd
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import opened
from mxd.trainer.evaluation.jacobians import load_forward_derivatives
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run_sets import weights_digest
from tests.api.conftest import User, one_family, user_model
from tests.helpers.runs import END

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
