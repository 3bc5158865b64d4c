"""What commands there are. Nothing is imported here, so that ``mxd --help`` answers at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PURPOSE = "Fit mixtures of linear decoders (MxD) to the MLPs of language models, and explore their experts."


class Entry(NamedTuple):
    """A command of ``mxd``."""

    module: str
    """Of this package."""
    name: str
    """Of its class there."""
    summary: str
    """One line for ``mxd --help``."""


COMMANDS: Mapping[str, Entry] = {
    "demo": Entry("demo", "DemoCommand", "serve the shipped sample at once"),
    "train": Entry("train", "TrainCommand", "fit a layer, or go on fitting it"),
    "presets": Entry("presets", "PresetsCommand", "settings of a fit for open language models"),
    "finetune": Entry("finetune", "FinetuneCommand", "runs of several layers, all in place at once, end to end"),
    "protect": Entry("protect", "ProtectCommand", "passages on which the language model shall be unsure, as new runs"),
    "import": Entry("importing", "ImportCommand", "a layer that another program fitted, as a run"),
    "index": Entry("index", "IndexCommand", "statistics and contexts of every expert into the store"),
    "influence": Entry(
        "influence", "InfluenceCommand", "what each expert does and how much it matters, into the store"
    ),
    "approximate": Entry("approximate", "ApproximateCommand", "an index over the gate of a run, as a run of its own"),
    "evaluate": Entry(
        "evaluate", "EvaluateCommand", "what runs add to the loss, and whether their experts do anything"
    ),
    "evaluate-steering": Entry(
        "evaluate_steering", "EvaluateSteeringCommand", "what turning experts up does to texts, beside controls"
    ),
    "probe": Entry("probe", "ProbeCommand", "how well single experts tell labelled texts apart"),
    "report": Entry("report", "ReportCommand", "every figure of what was measured, in one HTML file"),
    "label": Entry("label", "LabelCommand", "name experts by what they fire on, and say how well each name fits"),
    "explain": Entry(
        "explain", "ExplainCommand", "ask a language model of your choice to name experts, and test each name"
    ),
    "route": Entry("route", "RouteCommand", "which experts are active on each token of a text"),
    "circuit": Entry("circuit", "CircuitCommand", "from which tokens and experts a next token comes"),
    "steer": Entry("steer", "SteerCommand", "continue a prompt as it is and with edits"),
    "serve": Entry("serve", "ServeCommand", "the dashboard and the API"),
    "runs": Entry("runs", "RunsCommand", "what has been fitted"),
    "export": Entry("export", "ExportCommand", "experts and contexts as JSON, CSV, Parquet or Neuronpedia's batches"),
    "pack": Entry("bundle", "PackCommand", "a run with all that is known of it in one file"),
    "open": Entry("bundle", "OpenCommand", "serve a file that mxd pack wrote"),
    "push": Entry("share", "PushCommand", "put a run on the hub, with a card"),
    "pull": Entry("share", "PullCommand", "fetch a run from the hub, or from a folder"),
    "remove": Entry("remove", "RemoveCommand", "delete a run"),
    "doctor": Entry("doctor", "DoctorCommand", "is everything in order on this machine"),
    "store": Entry("store", "StoreCommand", "is the store whole; give back the room of what was deleted"),
    "token": Entry("token", "TokenCommand", "who may use a server that is bound beyond this machine"),
    "bench": Entry("bench", "BenchCommand", "speed and memory"),
    "completion": Entry("completion", "CompletionCommand", "a script that lets a shell complete all of this"),
}
"""Name -> where it is, in the order in which they are listed."""
