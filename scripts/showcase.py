"""Write the texts of the first page's slider: one saved session at several strengths, beside a random expert.

    python scripts/showcase.py smollm2-l22 Childhood "brings childhood into a text" \\
        --prompt "The captain looked at the sea and" --data data/demo --database sqlite:///data/mxd.sqlite

Reads the session from ``sessions.json`` and writes ``showcase.json``, both in the data folder. At strength 0 the text
is the baseline's; elsewhere every edit of the session has that strength. Takes five minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from mxd.backend.queries.runs import find_run
from mxd.trainer.analysis.edit_price import edit_price
from mxd.trainer.config.steering import Edit, SteeringConfig
from mxd.trainer.inference.results import SteeredGeneration, TokenEvent
from mxd.trainer.inference.steering import steer
from mxd.trainer.inference.units import column_values, random_experts
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.run import Run

STRENGTHS = (0.5, 1.0, 1.5)


def main() -> None:
    """Generate every text, measure its side effects, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("session", help="name of the session")
    parser.add_argument("title", help="what its experts do")
    parser.add_argument("--prompt", help="in place of the session's")
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--database", default="sqlite:///data/mxd.sqlite")
    words = parser.parse_args()
    stored = json.loads((words.data / "sessions.json").read_text("utf-8"))[words.run][words.session]
    config = SteeringConfig.model_validate(stored | {"prompt": words.prompt or stored["prompt"]})
    run = Run.load(words.run, words.data)
    language_model = LanguageModel.load(run.language_model_source, "cpu", "float32")
    with Session(create_engine(words.database)) as session:
        density_N = column_values(session, find_run(session, run.name), ExpertRecord.density)
    controls = [random_experts(density_N, edit.expert)[0] for edit in config.edits]

    def generated(edits: list[Edit]) -> SteeredGeneration:
        return SteeredGeneration.collect(
            run.name, config.prompt, steer(language_model, run, config.model_copy(update={"edits": tuple(edits)}))
        )

    texts: list[dict[str, Any]] = []
    for strength in STRENGTHS:
        edits = [edit.model_copy(update={"strength": strength}) for edit in config.edits]
        others = [edit.model_copy(update={"expert": each}) for edit, each in zip(edits, controls, strict=True)]
        pair, random = generated(edits), generated(others).steered[0]
        baseline, steered = pair.baseline[0], pair.steered[0]
        if not texts:
            texts.append({"strength": 0.0, "tokens": tokens_of(baseline.tokens, 0.0)})
        ratio = math.exp(loss(steered.tokens, 1.0) - loss(baseline.tokens, 0.0))
        price = edit_price(language_model, [run], edits)
        text = {"strength": strength, "tokens": tokens_of(steered.tokens, 1.0), "random": random.text}
        texts.append(text | {"perplexity_ratio": round(ratio, 2), "price": rounded(asdict(price))})
        print(f"{strength:g}: × {ratio:.2f} {steered.text!r}", file=sys.stderr)
    names = {"run": words.run, "session": words.session, "title": words.title, "prompt": config.prompt}
    command = shlex.join(["python", "scripts/showcase.py", *sys.argv[1:]])
    content = {**names, "command": command, "controls": controls, "texts": texts}
    (words.data / "showcase.json").write_text(json.dumps(content, ensure_ascii=False) + "\n", "utf-8")


def rounded(value: Any) -> Any:
    """Return nested figures with five decimals."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return round(value, 5) if isinstance(value, float) else value


def loss(tokens: tuple[TokenEvent, ...], steered: float) -> float:
    """Return the loss of a text without edits, in nats per token. ``steered`` is 1 for a steered text and else 0."""
    return fmean(token.delta_log_probability * steered - math.log(token.probability) for token in tokens)


def tokens_of(tokens: tuple[TokenEvent, ...], steered: float) -> list[dict[str, Any]]:
    """Keep the shown fields of a generated text, without special tokens at its end."""
    kept = [token for token in tokens if token.text and not token.text.startswith("<|")]
    changes = [round(steered * token.delta_log_probability, 3) for token in kept]
    return [
        {"id": token.id, "text": token.text, "delta_log_probability": change}
        for token, change in zip(kept, changes, strict=True)
    ]


if __name__ == "__main__":
    main()
