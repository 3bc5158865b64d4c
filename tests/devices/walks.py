"""Walks through the program on the pretend device: every command, function, route and method; its waits.

``auto-map`` splits the language model over both devices, with the layers of the runs ``one`` and ``two`` on ``sim:1``.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient
from transformers import PreTrainedModel

import mxd
from mxd.backend.api.app import create_app
from mxd.backend.settings import Settings
from mxd.trainer.analysis.indexing import build
from mxd.trainer.storage.run import Run
from mxd.trainer.training import rates
from mxd.trainer.training.layer_trainer import LayerTrainer
from tests.devices.plugin import SIZES, TEXT, run_line, train
from tests.devices.pretend_device import recording
from tests.helpers.runs import byte_tokenizer, tiny_language_model

COMMANDS = (
    f"evaluate one {TEXT} --tokens 64 --seen-text --prompts 1 --resamples 100 --jacobian-tokens 2 --k 2 "
    "--other-dataset other.jsonl",
    f"evaluate one two {TEXT} --tokens 64 --seen-text --prompts 1 --jacobian-tokens 0 --together --layer-by-layer",
    f"recurrence one seeded {TEXT} --tokens 256 --min-tokens 2 --resamples 100",
    "evaluate-steering one --sampled-experts 2 --strengths 3 --prompts old --samples 2 --max-tokens 3",
    f"index seeded {TEXT} --tokens 256",
    "ablate one --experts 1,2,3",
    "contrast one --a text.jsonl --b other.jsonl --tokens 1k --shuffles 2",
    "probe one --labels labelled.jsonl --candidates 5",
    "probe one --labels labelled.jsonl --level token --candidates 5",
    "route one fox",
    "find one two --prompt old --wanted fox --unwanted dog --hits 2",
    "circuit one two --prompt fox --nodes 8",
    "circuit one two --prompt fox --errors dropped --target 5 --against 6 --position 1 --nodes 4 --dtype bfloat16",
    "circuit one two --prompt fox --target-expert two/3 --nodes 4 --check none",
    f"finetune one two {TEXT} --context-length 16 --tokens 128 --batch-tokens 64 --name {{run}}-tuned",
    "export one --format vectors --experts 1,2 --out vectors-tuned",
    "export one --format gguf --experts 1 --out gguf-tuned",
)
WITHOUT_LANGUAGE_MODEL = tuple(f"export one --format {name} --out {name}" for name in ("json", "neuronpedia"))
EDITS = (
    "1:scale:3 --edit 2:add:2 --edit 3:set:4 --edit 4:ablate --edit two/3:add:4",
    "1:add:2 --positions 1,2",
    "1:add:2 --mode replace --scope generated",
    "1:add:2@when:2>0 --edit two/1:add:2@when:one/2<=median --edit 3:add:2@prompt",
    "1:add:2@ramp:3 --edit 2:ablate@first:2 --edit 3:set:1@fade:2 --edit 4:add:1@generated --edit 5:add:2@until:a",
    "1:add:2 --temperature 0 --k 2",
    "1:add:2 --top-k 5 --top-p 0.5 --temperature 2 --samples 3 --repetition-penalty 1.5 --stop zz",
)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("command", (*COMMANDS, *WITHOUT_LANGUAGE_MODEL))
def test_every_command_on_a_split_language_model(command: str) -> None:
    run_line(f"{command} --device auto-map")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize(
    "command", [f"{COMMANDS[0].partition(' --k')[0]} --seed 1", COMMANDS[4], COMMANDS[-3].replace("-tuned", "-whole")]
)
def test_commands_on_one_device(command: str) -> None:
    run_line(f"{command} --device auto")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("device", ["auto", "auto-map"])
def test_every_kind_of_steering(device: str) -> None:
    for edit in EDITS if device == "auto" else (EDITS[3], EDITS[-1]):
        run_line(f"steer one fox --max-tokens 4 --device {device} --edit {edit}")


TEXTS = [f"the {adjective} {noun} sang" for adjective in ("old", "red", "blue") for noun in ("fox", "dog")] * 40
Subject = tuple[PreTrainedModel, mxd.Layer]


@pytest.fixture(scope="module", params=["sim:0 bfloat16 llama", "sim:1 float32 gpt2"])
def subject(request: pytest.FixtureRequest, folder: Path) -> Subject:
    """A model on a device, and a run that was trained on it and indexed."""
    device, dtype, family = request.param.split()
    model: Any = tiny_language_model(family).module.to(device, getattr(torch, dtype))
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "batch_tokens": 64, "buffer_tokens": 256}
    tokenizer = byte_tokenizer()
    run = mxd.train(model, tokenizer, TEXTS, layer=1, tokens=512, name=family, data=folder, progress=False, **sizes)
    mxd.index(run, TEXTS, tokens=512, progress=False)
    return model, run


def test_every_function(subject: Subject) -> None:
    _, run = subject
    assert mxd.route(run, "old fox").tokens
    assert mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=3).text("steered")
    assert mxd.trace(run, "old fox").nodes
    mxd.contrast(run, TEXTS[:12], TEXTS[12:24], shuffles=2, progress=False)
    mxd.evaluate(run, TEXTS, tokens=128, seen_text=True, prompts=2, jacobian_tokens=4, resamples=100, progress=False)


def test_a_layer_in_a_forward_pass(subject: Subject) -> None:
    model, run = subject
    batch = {name: values.to(model.device) for name, values in run.tokenize(["old fox"]).items()}
    plain = model(**batch).logits
    activations = run.activations(model, batch)
    assert activations.shape == (*batch["input_ids"].shape, 40)
    with run.steer(model, {1: ("scale", 0.5), 3: +9}):
        assert not torch.equal(model(**batch).logits.cpu(), plain.cpu())
    with run.replace(model):
        assert model(**batch).logits.device == model.device
    assert torch.equal(model(**batch).logits.cpu(), plain.cpu())


def test_gradients_through_a_replaced_layer(subject: Subject) -> None:
    model, run = subject
    batch = {name: values.to(model.device) for name, values in run.tokenize(["old fox"]).items()}
    with torch.inference_mode():
        run.to(model.device)
    with run.replace(model):
        model(**batch).logits.float().square().mean().backward()
    assert any(parameter.grad is not None for parameter in run.parameters())


PAIR = [{"expert": 1, "mode": "add", "strength": 2.0}, {"expert": 2, "mode": "ablate"}]
ASKED = {"text": "old fox"}
CIRCUIT = {**ASKED, "runs": ["one", "two"], "nodes": 12}
SAMPLING = {"sampling": {"max_tokens": 4}}
ROUTES: dict[str, dict[str, Any] | None] = {
    "/api/runs/one/routing": {**ASKED, "others": ["two"]},
    "/api/runs/one/routing/predictions": {**ASKED, "others": ["two"]},
    "/api/runs/one/routing/effects": {**ASKED, "position": 2},
    "/api/runs/one/search/passage": ASKED,
    "/api/circuits": CIRCUIT,
    "/api/find": {"prompts": ["old"], "runs": ["one", "two"], "wanted": ["fox"]},
    "/api/runs/one/steering": {"prompt": "fox", "edits": PAIR, **SAMPLING},
    "/api/runs/one/steering/sweep": {"prompt": "fox", "edits": PAIR, "strengths": [0, 3], "control": 5, **SAMPLING},
    "/api/runs/one/contrast": {"a": {"documents": ["old fox", "a dog"] * 6}, "b": {"documents": ["the red sang"] * 12}},
    "/v1/completions": {"model": "one", "prompt": "fox", "max_tokens": 4},
    "/api/runs/one/experts/1/map": None,
    "/api/runs/one/experts/1/similar": None,
    "/api/runs/one/options": None,
    "/api/runs/one/comparison/two": None,
}


@pytest.fixture(scope="module")
def client(runs: Path) -> Iterator[TestClient]:
    """A client of a server on the runs, with a language model that is split over both devices."""
    settings = Settings(data=runs / "data", frontend=runs / "dist", device="auto-map")
    with TestClient(create_app(settings)) as it:
        yield it


def succeeds(client: TestClient, path: str, body: dict[str, Any] | None) -> Any:
    """The answer's JSON, or the text of a stream without an error."""
    answer = client.get(path) if body is None else client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert '"event":"error"' not in answer.text.replace(" ", "")
    return answer.text if "event-stream" in answer.headers["content-type"] else answer.json()


@pytest.mark.parametrize("path", ROUTES)
def test_every_route(client: TestClient, path: str) -> None:
    assert succeeds(client, path, ROUTES[path])
    assert succeeds(client, path, ROUTES[path])


def test_effects_of_a_circuit(client: TestClient) -> None:
    graph = succeeds(client, "/api/circuits", CIRCUIT)["graph"]
    experts = [node for node in graph["nodes"] if node["kind"] == "expert"]
    groups = [[{name: node[name] for name in ("run", "expert", "position")}] for node in experts[:2]]
    asked = {**CIRCUIT, "groups": groups}
    assert succeeds(client, "/api/circuits/check", {**CIRCUIT, "graph": graph})
    assert len(succeeds(client, "/api/circuits/effects", asked)) == len(groups)


def test_a_completion_is_streamed(client: TestClient) -> None:
    body = {"model": "one", "prompt": "fox", "max_tokens": 4, "stream": True}
    assert "[DONE]" in succeeds(client, "/v1/completions", body)


METHODS = ("mxd", "transcoder", "skip-transcoder", "autoencoder", "batch-topk-mxd", "molt --rank 4")
OPTIONS = {
    "paper": "--mixing paper --k-spread 0.5 --dtype float32 --checkpoint-every 128 --matmul-precision high",
    "random": "--init random --load-balance-weight 0.1 --matmul-precision medium",
    "matryoshka-{layer}": "--min-k 1 --device sim:1 --layer 0,2",
    "cached": "--cache activations",
    "cached-again": "--cache activations --seed 1 --data-seed 0",
    "split-layers-{layer}": "--device auto-map --layer 0,2 --cache split-layers",
    "split-other-layer": "--device auto-map --layer 0",
    "sweep-{k}-{seed}": "--k 2,3 --seed 0,1",
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Waits for the device in all training steps after which nothing is logged."""
    found: Counter[str] = Counter()
    take_step = LayerTrainer.train_step

    def recorded(trainer: LayerTrainer, batch: Any) -> Any:
        with recording() as waits:
            output = take_step(trainer, batch)
        if trainer.step % trainer.config.log_every and trainer.step < trainer.total_steps:
            found.update(waits, steps=1)
        return output

    monkeypatch.setattr(LayerTrainer, "train_step", recorded)
    return found


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", [*METHODS, *OPTIONS])
def test_every_method_and_option_without_a_wait_between_logs(name: str, waits: Counter[str]) -> None:
    train(f"of-{name.split()[0]}", OPTIONS.get(name, f"--method {name}"))
    assert waits.keys() == {"steps"}


def test_a_resumed_run_equals_an_uninterrupted_one(folder: Path) -> None:
    train("whole", "--checkpoint-every 256", tokens=1024)
    train("halves", "--checkpoint-every 256", tokens=1024)
    halves = folder / "data" / "runs" / "halves"
    (halves / "layer.safetensors").unlink()
    run_line("train --name halves --resume")
    weights = [Run.load(name, folder / "data").layer.state_dict() for name in ("whole", "halves")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.usefixtures("folder")
def test_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "SECONDS_EACH", 0.0)
    run_line(f"train lm {TEXT} {SIZES} --tokens 1k --k 4 --layer 1 --plan --device sim")


def waits_of(work: Callable[[int], object], sizes: tuple[int, int]) -> dict[str, float]:
    """Waits per unit of work, from two amounts of it."""
    found = []
    for size in sizes:
        with recording() as waits:
            work(size)
        found.append(waits)
    return {place: count / (sizes[1] - sizes[0]) for place, count in (found[1] - found[0]).items()}


def test_waits_of_a_token(runs: Path) -> None:
    """A token of a steered text and of its baseline: six results are read; ids, edits and indices are written."""
    run = mxd.load("one", data=runs / "data")
    mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=2)
    waits = waits_of(lambda tokens: mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=tokens), (2, 4))
    read = sum(count for place, count in waits.items() if place.startswith(("tolist", "copy to the CPU")))
    assert (read, sum(waits.values())) == (6, 14), waits


def test_waits_of_an_index_batch(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids to the device; experts and activations back; transformers asks whether the sequences are packed."""
    # Batches are routed ahead in another thread, which would not be recorded.
    monkeypatch.setattr(build, "prefetch", lambda batches, _ahead: batches)
    monkeypatch.setattr(build, "TOKENS_PER_BATCH", 128)
    waits = waits_of(lambda batches: run_line(f"index seeded {TEXT} --tokens {batches * 128}"), (1, 2))
    assert sum(waits.values()) == 4, waits
