"""A trained layer: loading, its equations, the activations of a batch, and what the index knows of an expert."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sqlalchemy.orm import Session

import mxd
from mxd.backend.database.annotations import set_label
from mxd.backend.database.engine import opened
from mxd.trainer.storage.database.open import sqlite_url
from tests.api.conftest import User

SHORT, LONG = "the fox", "a very old dog sang."


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
    torch.testing.assert_close(layer.decode(x, a.to_sparse()), y)
    assert layer(x.double()).dtype == torch.float64
    assert not y.is_inference()


def test_decode_has_gradients_for_inactive_experts(user: User) -> None:
    x = torch.randn(3, 16)
    a = user.run.encode(x).detach().requires_grad_(True)
    user.run.decode(x, a).sum().backward()
    assert a.grad is not None
    assert bool((a.grad[a == 0] != 0).any())


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_activation(user: User, side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user.tokenizer, "padding_side", side)
    batch = user.tokenizer([SHORT, LONG], return_tensors="pt", padding=True)
    padded = user.run.activations(user.model, batch)
    assert padded.is_sparse
    assert not padded.is_inference()
    assert not padded.requires_grad
    assert padded.shape == (2, len(LONG), 40)
    for row, text in enumerate((SHORT, LONG)):
        alone = user.run.activations(user.model, user.tokenizer(text, return_tensors="pt")["input_ids"])
        kept = padded.to_dense()[row][batch["attention_mask"][row].bool()]
        torch.testing.assert_close(kept, alone.to_dense()[0], rtol=1e-4, atol=1e-5)
    assert float(padded.to_dense()[batch["attention_mask"] == 0].abs().sum()) == 0


def test_activations_are_differentiable_if_asked(user: User) -> None:
    ids = user.tokenizer(LONG, return_tensors="pt")["input_ids"]
    embeddings = user.model.get_input_embeddings()(ids).detach().requires_grad_(True)
    activations = user.run.activations(user.model, {"inputs_embeds": embeddings}, requires_grad=True)
    (gradient,) = torch.autograd.grad(activations.to_dense()[0, -1].sum(), embeddings)
    assert float(gradient.abs().sum()) > 0


def test_a_batch_without_ids_is_an_error(user: User) -> None:
    with pytest.raises(mxd.UserError, match="no tensor of token ids"):
        user.run.activations(user.model, user.tokenizer(LONG))


def test_an_expert_has_the_label_of_the_dashboard_and_a_table(user: User) -> None:
    ids = user.tokenizer(LONG, return_tensors="pt")["input_ids"]
    expert = int(user.run.activations(user.model, ids).sum(dim=(0, 1)).to_dense().argmax())
    with opened(sqlite_url(user.data)) as engine, Session(engine) as session, session.begin():
        set_label(session, "mine", expert, "my own label")
    info, examples = user.run.expert(expert), user.run.examples(expert)
    assert info.label == "my own label"
    assert info.examples == examples[:8]
    table = examples.to_pandas()
    assert list(table.columns) == ["activation", "token", "position", "text", "tokens", "activations"]
    assert table["activation"].is_monotonic_decreasing
    assert table["activation"][0] == info.max_activation
    assert "background:rgba(" in examples._repr_html_()
    with pytest.raises(mxd.UserError, match="experts 0 to 39"):
        user.run.expert(40)


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
