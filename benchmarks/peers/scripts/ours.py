"""MxD Explorer: the same work as the peers. Steering and routing report everything that the dashboard shows."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from sqlalchemy import select
from sqlalchemy.orm import Session

from benchmarks.peers.scripts.protocol import serve
from benchmarks.trainer.generate import steer_together, steering_config, units_of_one
from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.analysis.labelling.rules import label_experts
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.config.layer import Method
from mxd.trainer.config.steering import Edit
from mxd.trainer.config.training import OptimizerConfig, TextConfig, TrainConfig
from mxd.trainer.inference.generation import run_alone
from mxd.trainer.inference.results import TokenEvent
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import Steering, steer
from mxd.trainer.language_model.loading import load_width
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.mxd import SparseLayer
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import open_trainer_database, sqlite_url
from mxd.trainer.storage.run import Run
from mxd.trainer.training.precision import fastest_dtype
from mxd.trainer.training.train import train_layers

NAMES = {"gate.weight": "W_enc", "gate.bias": "b_enc", "direction_NO": "W_dec", "output_bias": "b_dec"}

torch.set_num_threads(int(os.environ["THREADS"]))
folder = Path(sys.argv[1])
work = torch.load(folder / "work.pt", weights_only=True)
ours = json.loads((folder / "ours.json").read_text())
run = Run.load(Path(ours["run"]), Path(ours["run"]).parent)
language_model = LanguageModel.load(run.language_model_source, "cpu", torch.float32)
steered = steering_config(run, work["tokens"], 0)


@cache
def model_to_train_on() -> LanguageModel:
    """The language model in the dtype that ``mxd train`` uses by default on this CPU."""
    source = run.language_model_source
    return LanguageModel.load(source, "cpu", fastest_dtype(torch.device("cpu"), load_width(source)))


def pair() -> int:
    """Generate both variants, with all values that the dashboard shows."""
    return len(list(steer(language_model, run, steered, units_of_one(run, steered))))


def text() -> int:
    """Generate the steered text only. Returns its number of tokens."""
    alone = Steering.prepare(language_model, [run], steered, units_of_one(run, steered)).alone()
    generated = "".join(step.text for step in run_alone(language_model, alone) if isinstance(step, TokenEvent))
    return len(language_model.tokenizer(generated, add_special_tokens=False)["input_ids"])


def pairs() -> int:
    """Generate several pairs of a prompt, with all values that the dashboard shows. Returns the number of tokens."""
    return steer_together(language_model, [request(work["pairs"], steered.edits)])


def texts(samples: int) -> int:
    """Generate the two texts of several pairs of a prompt, and nothing else. Returns the number of tokens."""
    return steer_together(language_model, [request(samples, edits).alone() for edits in ((), steered.edits)])


def request(samples: int, edits: tuple[Edit, ...]) -> Steering:
    """A request for several samples; without edits, both variants are the baseline."""
    sampling = steered.sampling.model_copy(update={"samples": samples})
    config = steered.model_copy(update={"sampling": sampling, "edits": edits})
    return Steering.prepare(language_model, [run], config, units_of_one(run, config))


def routing() -> float:
    """Route the text. Returns the share of experts that the gate itself chooses."""
    found = [{expert.expert for expert in token.experts} for token in route(language_model, run, ours["routed"]).tokens]
    pairs = zip(found, work["chosen"].tolist(), strict=True)
    same = [expert in experts for experts, chosen in pairs for expert in chosen]
    return sum(same) / len(same)


def index() -> float:
    """Index and label: statistics, contexts and labels in the database. Returns the active experts per token."""
    text = TextConfig(dataset=ours["text"], context_length=work["train"].shape[1], on_short_text="repeat")
    with tempfile.TemporaryDirectory() as name:
        shutil.copytree(run.folder, Path(name, "runs", run.name))
        database = open_trainer_database(sqlite_url(Path(name)))
        copied = Run.load(run.name, Path(name))
        build_index(copied, IndexConfig(text=text, tokens=work["train_tokens"]), language_model, database)
        label_experts(copied, database)
        with Session(database) as session:
            active = session.scalars(select(ExpertRecord.density)).all()
        database.dispose()
    return sum(active)


def trained(method: Method) -> SparseLayer:
    """Train with the default settings, except sizes."""
    config = TrainConfig(
        name=method,
        language_model=run.config.language_model,
        layer=work["layer"],
        text=TextConfig(dataset=ours["text"], context_length=work["train"].shape[1], on_short_text="repeat"),
        tokens=work["train_tokens"],
        method=method,
        num_experts=work["train_experts"],
        k=work["train_k"],
        optimizer=OptimizerConfig(batch_tokens=work["batch_tokens"]),
    )
    model = model_to_train_on()
    with tempfile.TemporaryDirectory() as name:
        database = open_trainer_database(sqlite_url(Path(name)))
        train_layers([config], Path(name), database, model)
        database.dispose()
        return Run.load(method, Path(name)).layer


def train(method: Method) -> str:
    """Train a transcoder or autoencoder. Returns the file with the weights."""
    path, layer = folder / f"ours-{method}.safetensors", trained(method)
    weights = {NAMES[name]: value.contiguous() for name, value in layer.state_dict().items()}
    if method == "autoencoder":
        weights["b_enc"] = weights["b_enc"] - weights["W_enc"] @ weights["b_dec"]
    save_file(weights, path)
    return str(path)


def train_mxd() -> Callable[[], str]:
    """Train an MxD. Afterwards compute its outputs on held-out tokens. Returns their file."""
    layer = trained("mxd")

    def outputs() -> str:
        path = folder / "ours-mxd.safetensors"
        with torch.no_grad():
            save_file({"output": layer(work["held_out"]).output_TO}, path)
        return str(path)

    return outputs


works: dict[str, Callable[[], object]] = {"pair": pair, "pairs": pairs, "text": text, "routing": routing}
works |= {"pair-texts": partial(texts, 1), "pairs-texts": partial(texts, work["pairs"]), "index": index}
works |= {"autoencoder": partial(train, "autoencoder"), "transcoder": partial(train, "transcoder"), "mxd": train_mxd}
serve(works, ("mxd-explorer", "torch"))
