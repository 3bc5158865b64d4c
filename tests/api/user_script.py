"""A user's script. ``make check`` checks its types strictly, and ``test_user_script`` runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

import mxd


def token_ids(count: int) -> Iterator[list[int]]:
    """Documents of token ids."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randint(1, 200, (32,), generator=generator).tolist()


def main(model_folder: str) -> str:
    """Train, read, steer and compare. Returns the table of an expert's examples."""
    model, tokenizer = mxd.load_model(model_folder)
    errors: list[float] = []

    def log(metrics: Mapping[str, float]) -> bool:
        errors.append(metrics["normalized_mse"])
        return errors[-1] < 1e-6

    run = mxd.train(
        model,
        tokenizer,
        token_ids(64),
        layer=1,
        name="script",
        num_experts=40,
        k=4,
        callbacks=[log],
        progress=False,
        context_length=16,
        batch_tokens=64,
        log_every=4,
    )
    assert isinstance(run, mxd.MxD)
    batch = run.tokenize(["one", "another text"])
    activations: torch.Tensor = run.activations(model, batch)
    expert = int(torch.sparse.sum(activations, dim=(0, 1)).to_dense().argmax())
    matrix: torch.Tensor = run.expert_matrix(expert)
    assert matrix.shape == (24, 16)
    with run.steer(model, {expert: +6, 3: "ablate", 4: ("scale", 0.5)}), torch.no_grad():
        model(**batch)
    mxd.index(run, token_ids(64), progress=False)
    generation = mxd.generate(run, "one", {expert: +6}, max_tokens=4)
    assert run.expert(expert).density > 0
    assert generation.text("steered")
    assert mxd.__version__
    return str(run.examples(expert).to_pandas()["text"].iloc[0])
