"""Loss and routing share of a layer that answers beside its MLP: its own figures at 1, nothing at 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.partial_replacement import main
from trainer.config import SAMPLE, EvaluateConfig, TextConfig
from trainer.evaluation.evaluate import Session, evaluate
from trainer.evaluation.result import Evaluation
from trainer.language_model import LanguageModel
from trainer.run import Run

TEXT = str(SAMPLE / "text.jsonl.gz")


def test_the_whole_layer_is_what_is_evaluated_and_none_of_it_is_the_mlp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["demo-l3-k16", "--text", TEXT, "--tokens", "1024", "--parts", "1,0.5,0", "--data", str(tmp_path)])
    whole, half, none = json.loads(capsys.readouterr().out)
    run = Run.load("demo-l3-k16", tmp_path)
    config = EvaluateConfig(text=TextConfig(text=TEXT), tokens=1024, prompts=0)
    language_model = LanguageModel.load(run.language_model_source, "cpu")
    wanted = evaluate(Session.open(config, language_model, lambda *_: None, lambda: False), run, seen_text=False).result
    assert isinstance(wanted, Evaluation)
    assert whole["delta_ce"]["value"] == pytest.approx(wanted.delta_ce.value, abs=1e-5)
    assert whole["routing_share"]["value"] == pytest.approx(wanted.routing_share, abs=1e-3)
    assert half["delta_ce"]["value"] < whole["delta_ce"]["value"] / 2
    assert half["routing_share"]["value"] < whole["routing_share"]["value"] / 2
    assert none["delta_ce"]["value"] == pytest.approx(0, abs=1e-5)
    assert none["routing_share"]["value"] == pytest.approx(0, abs=1e-3)
