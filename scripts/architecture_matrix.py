"""Run checks, most of them of ``tests/helpers/architectures.py``, on every causal language model of transformers.

Resumable: results are added to results/raw/architecture-matrix.json, and those of the present versions are kept. With
``--page``, only writes docs/reference/architectures.md from that file.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils import logging

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.architecture import Architecture
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.training.train import train_layers
from tests.helpers.architectures import TOLERANCE, Checks, plain_mlps, relative, tiny_config, tiny_module

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "raw" / "architecture-matrix.json"
PAGE = ROOT / "docs" / "reference" / "architectures.md"
TIMEOUT_SECONDS = 300
TOO_LARGE = 5_000_000
"""Parameters above which a model is not tiny."""


CELLS = ("capture", "train", "index", "evaluate", "steer", "circuit", "vectors", "attach")


class AllChecks(Checks):
    """With those of training and indexing, in which architectures differ by what is captured only."""

    def train(self) -> float:
        """Weights of a layer trained alone against those trained in one pass with another layer."""
        others = [layer for layer in plain_mlps(Architecture(self.module, "")) if layer > self.layer]
        alone = self.run.layer.state_dict()
        with self.world() as world:
            layers = dict(zip(("first", "second"), (self.layer, *others[:1]), strict=False))
            configs = [world.config(name, layer=layer, tokens=1024) for name, layer in layers.items()]
            train_layers(configs, world.data, world.database, world.language_model)
        together = Run.load("first", self.data).layer.state_dict()
        return max(relative(together[name].float(), value.float()) for name, value in alone.items())

    def index(self) -> float:
        """Active tokens of all experts against counts on hooked inputs."""
        with self.world() as world:
            world.index(self.run)
            actual = torch.tensor([row.active_tokens for row in world.rows(ExpertRecord)]).float()
        with torch.no_grad():
            routing = self.run.layer.route(self.mlp_input(self.ids("text.jsonl", 640, "shuffled")))
        active = routing.indices_TK[routing.activations_TK > 0]
        expected = torch.bincount(active, minlength=len(actual)).float()
        # A gate activation near 0, or two near each other, may round to another side.
        differing = (actual - expected).abs().sum().item()
        return differing / expected.sum().item() if differing > 4 else 0.0


def versions() -> dict[str, str]:
    """Versions that the results depend on."""
    return {package: version(package) for package in ("torch", "transformers")}


def checked_apart(kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Check one architecture in a process of its own, because a defect may end it or never end."""
    forking = multiprocessing.get_context("fork")  # everything is imported once
    received, sent = forking.Pipe(duplex=False)
    process = forking.Process(target=lambda: sent.send(check_one(kind, names)))
    process.start()
    sent.close()
    try:
        if not received.poll(TIMEOUT_SECONDS):
            return {"defect": f"no answer in {TIMEOUT_SECONDS} seconds"}
        answer: dict[str, Any] = received.recv()
        return answer
    except EOFError:
        return {"defect": "the process ended without an answer"}
    finally:
        process.kill()
        process.join()


def check_one(kind: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the cells of one architecture, or why transformers cannot build it this small."""
    try:
        with torch.device("meta"):
            size = sum(weight.numel() for weight in AutoModelForCausalLM.from_config(tiny_config(kind)).parameters())
        if size > TOO_LARGE:
            raise ValueError(f"its smallest config still has {size:,} parameters")
        tiny_module(kind)
    except Exception as error:  # noqa: BLE001  # whatever transformers raises for settings that do not fit
        return {"unbuildable": f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = AllChecks(kind, Path(folder))
        return {"cells": {name: cell_of(checks, name) for name in names}}


def cell_of(checks: Checks, name: str) -> dict[str, Any]:
    """Result of one check: the largest relative difference, or the sentence of a refusal, or a defect."""
    try:
        return {"difference": float(getattr(checks, name)())}
    except UserError as error:
        return {"refused": str(error).replace(str(checks.folder), "").replace("/model", checks.kind)}
    except Exception as error:  # noqa: BLE001  # a defect is a result, which the matrix shows
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def read() -> dict[str, Any]:
    """Results so far; none if they were measured with other versions."""
    if RESULTS.is_file():
        found: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
        if found["versions"] == versions():
            return found
    return {"versions": versions(), "date": "", "command": "python -m scripts.architecture_matrix", "architectures": {}}


def page(results: dict[str, Any]) -> str:
    """The results as a page of the documentation."""
    cells = {kind: found["cells"] for kind, found in sorted(results["architectures"].items()) if "cells" in found}
    refused: dict[str, int] = {}
    rows = [f"| architecture | {' | '.join(CELLS)} |", "|" + "---|" * (len(CELLS) + 1)]
    for kind, found in cells.items():
        shown = []
        for name in CELLS:
            cell = found[name]
            if "refused" in cell:
                sentence = cell["refused"].replace(f"of {kind} ", "").replace(f" in {kind}", "")
                shown.append(f"[{refused.setdefault(sentence, len(refused) + 1)}]")
            else:
                shown.append(f"{cell['difference']:.0e}" if "difference" in cell else f"**{cell['error']}**")
        rows.append(f"| {kind} | {' | '.join(shown)} |")
    exact = sum("difference" in cell for found in cells.values() for cell in found.values())
    full = sum(all("difference" in cell for cell in found.values()) for found in cells.values())
    unbuildable = sorted(kind for kind, found in results["architectures"].items() if "unbuildable" in found)
    defects = [f"`{kind}`: {found['defect']}" for kind, found in results["architectures"].items() if "defect" in found]
    packages = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    sentences = [f"{number}. {sentence}" for sentence, number in refused.items()]
    return "\n".join(
        [
            "# Architectures",
            "",
            f"Measured on {results['date']} with {packages}, on a CPU in float32:",
            f"`{results['command']}`, which also writes this page. Raw data: `results/raw/architecture-matrix.json`.",
            "",
            f"A tiny random model of each of {len(cells)} causal language models of transformers was captured, trained",
            "on, indexed, evaluated, steered and traced. Each result was compared with plain transformers and hooks.",
            f"A number is the largest relative difference; up to {TOLERANCE:.0e} is rounding. A number in brackets is",
            f"a refusal, whose sentence is below the table. Of {len(cells) * len(CELLS)} cells, {exact} are numbers.",
            f"{full} architectures have no refusal.",
            "",
            "| check | compared with |",
            "|---|---|",
            "| capture | inputs and outputs of the MLP in hooks |",
            "| train | two layers in one pass: the weights of a layer trained alone |",
            "| index | active tokens of each expert, counted on hooked inputs |",
            "| evaluate | loss, and loss increase with the layer in a hook |",
            "| steer | probabilities of eight greedily steered tokens, hooked, without a cache |",
            "| circuit | the target's value and predicted changes by autograd through a hook |",
            "| vectors | difference of the block's output with and without an expert |",
            "| attach | logits of a model with the layer in a hook |",
            "",
            *rows,
            "",
            "## Refusals",
            "",
            *sentences,
            *(["", "## Defects", "", *defects] if defects else []),
            "",
            "## Not built",
            "",
            f"These need settings that no tiny config has: {', '.join(unbuildable)}.",
            "",
        ]
    )


def main() -> None:
    """Check what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--again", nargs="*", default=[], help="architectures to check again")
    parser.add_argument("--cells", nargs="*", choices=CELLS, help="only these checks, of architectures with cells")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # processes that are forked may not use the threads of this one
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    results = read()
    for kind in () if arguments.page else MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        known = results["architectures"].get(kind)
        if known is not None and kind not in arguments.again and not (arguments.cells and "cells" in known):
            continue
        found = checked_apart(kind, arguments.cells or CELLS)
        if known is not None and "cells" in known and "cells" in found:
            found["cells"] = known["cells"] | found["cells"]
        results["architectures"][kind] = found
        results["date"] = datetime.now(UTC).date().isoformat()
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", "utf-8")
        print(kind, flush=True)
    PAGE.write_text(page(results), "utf-8")


if __name__ == "__main__":
    main()
