"""Judge saved sessions on random numbers that had no part in their choice.

    python scripts/judge_sessions.py data/demo/sessions.json --data data/demo

Each session generates 16 texts of 32 tokens for the baseline, for its edits, and for a control: a random expert of
similar density in place of the first edit's. Prints one JSON document with the perplexity of the texts under the
original model relative to the baseline's, both concept scores beside the control's, and the first text of each.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from sqlalchemy.orm import Session

from mxd.backend.database.engine import open_database
from mxd.trainer.config.steering import Sampling, StrengthSweepConfig
from mxd.trainer.inference.generation import run_alone
from mxd.trainer.inference.results import StrengthSweepDoneEvent
from mxd.trainer.inference.strength_sweep import StrengthSweep
from mxd.trainer.inference.units import with_control
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import Turn, chat_text
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.run import Run

SEED = 4_000


def main() -> None:
    """Judge all sessions of a file, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sessions", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seed", type=int, default=SEED, help="a seed on which no session was chosen")
    words = parser.parse_args()
    database = open_database(sqlite_url(words.data))
    judged = []
    language_model: LanguageModel | None = None
    for name, sessions in json.loads(words.sessions.read_text("utf-8")).items():
        run = Run.load(name, words.data)
        language_model = language_model or LanguageModel.load(run.language_model_source, "cpu", torch.float32)
        for title, saved in sessions.items():
            with Session(database) as session:
                config = with_control(session, sweep_config(saved, language_model, words.seed), name)
            judged.append({"run": name, "session": title, "seed": words.seed} | judge(run, config, language_model))
            print(f"{name}: {title}", file=sys.stderr)
    database.dispose()
    print(json.dumps(judged, indent=1))


def sweep_config(saved: dict[str, Any], language_model: LanguageModel, seed: int) -> StrengthSweepConfig:
    """Strength sweep of a session's first edit at its own strength only."""
    settings = {name: value for name, value in saved.items() if name != "turns"}
    if "turns" in saved:
        turns = [Turn(**turn) for turn in saved["turns"]]
        settings["prompt"] = chat_text(language_model.tokenizer, turns)
    sampling = Sampling(max_tokens=32, samples=16, seed=seed)
    return StrengthSweepConfig(**settings, strengths=(saved["edits"][0]["strength"],), sampling=sampling)


def judge(run: Run, config: StrengthSweepConfig, language_model: LanguageModel) -> dict[str, Any]:
    """Figures and first texts of one session."""
    *_, done = run_alone(language_model, StrengthSweep.prepare(language_model, [run], config))
    assert isinstance(done, StrengthSweepDoneEvent)
    return {
        "edits": [edit.model_dump(include={"expert", "strength"}) for edit in config.edits],
        "control": done.control,
        "baseline_text": done.baseline_text,
        **asdict(done.points[0]),
    }


if __name__ == "__main__":
    main()
