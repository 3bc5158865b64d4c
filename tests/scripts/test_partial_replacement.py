"""Loss and routing share of a layer that answers beside its MLP: its own figures at 1, nothing at 0."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxd.trainer.config import EvaluateConfig, TextConfig
from mxd.trainer.evaluation.evaluate import Evaluator, evaluate
from mxd.trainer.evaluation.results import Evaluation
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS
from scripts.partial_replacement import main
from tests.helpers.demo import TEST_DEMO

TEXT, RUN = str(TEST_DEMO / "text.jsonl.gz"), TEST_DEMO / "runs" / "demo-l3-k16"


def test_part_one_equals_the_evaluation_and_part_zero_the_mlp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(RUN), "--dataset", TEXT, "--tokens", "1024", "--parts", "1,0.5,0", "--data", str(tmp_path)])
    whole, half, none = json.loads(capsys.readouterr().out)
    run = Run.load(RUN, tmp_path)
    config = EvaluateConfig(text=TextConfig(dataset=TEXT), tokens=1024, prompts=0)
    language_model = LanguageModel.load(run.language_model_source, "cpu")
    wanted = evaluate(Evaluator.open(config, language_model, NO_CALLBACKS), run, seen_text=False).result
    assert isinstance(wanted, Evaluation)
    assert whole["loss_increase"]["value"] == pytest.approx(wanted.loss_increase.value, abs=1e-5)
    assert whole["routing_share"]["value"] == pytest.approx(wanted.routing_share, abs=1e-3)
    assert half["loss_increase"]["value"] < whole["loss_increase"]["value"] / 2
    assert half["routing_share"]["value"] < whole["routing_share"]["value"] / 2
    assert none["loss_increase"]["value"] == pytest.approx(0, abs=1e-5)
    assert none["routing_share"]["value"] == pytest.approx(0, abs=1e-3)
