"""Commands that made, or would make, what the database holds: of the report, and those that the dashboard suggests."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.config.base import RETIRED, UNREAD
from mxd.trainer.config.training import OptimizerConfig, RegularizationConfig, TextConfig, TrainConfig
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    EvaluationRecord,
    MeasurementRecord,
    ProbeRecord,
    RunRecord,
    SteeringStrengthRecord,
)

Settings = Mapping[str, Any]
PARTS = ("text", "optimizer", "regularization", "experimental")
"""Groups of settings whose flags are not nested."""
NO_FLAGS = ("language_model", "origin", "parents", "numbers", "candidates", "language_model_dtype", *RETIRED, *UNREAD)
"""Settings that other arguments or other commands state."""
OF_FINE_TUNING = (
    *("dataset", "column", "split", "context_length", "on_short_text", "tokens", "learning_rate", "warmup_ratio"),
    *("decay_ratio", "batch_tokens"),
)


def commands(session: Session) -> list[str]:
    """Return the commands of all runs, evaluations, probes and steering measurements, in an executable order."""
    runs = {run.id: run for run in session.scalars(select(RunRecord).order_by(RunRecord.started_at, RunRecord.id))}
    lines = [fit(run.config) for run in runs.values()]
    # Earlier versions stored measurements of privacy fine-tuning as evaluations.
    evaluations = select(EvaluationRecord).where(~EvaluationRecord.subject.startswith("privacy: "))
    lines += [_evaluate(record) for record in session.scalars(evaluations.order_by(EvaluationRecord.id))]
    for probe in session.scalars(select(ProbeRecord).order_by(ProbeRecord.id)):
        lines.append(_line("probe", [runs[probe.run_id].name], probe.settings))
    measured = session.scalars(select(AblationRecord.run_id).distinct())
    for run_id in sorted(measured):
        flags = _settings(session, run_id, "ablate")
        experts = ",".join(map(str, flags.pop("experts", ()))) or None
        lines.append(_line("ablate", [runs[run_id].name], {**flags, "experts": experts}))
    lines += [_steering(session, run) for run in runs.values()]
    return [line for line in dict.fromkeys(lines) if line]


def _steering(session: Session, run: RunRecord) -> str:
    table = SteeringStrengthRecord
    rows = session.execute(
        select(table.expert, table.strength).where(table.run_id == run.id, table.kind == "expert")
    ).all()
    if not rows:
        return ""
    known = _settings(session, run.id, "evaluate-steering")
    strengths = known.get("strengths", sorted({strength for _, strength in rows}))
    experts = known.pop("experts", len({expert for expert, _ in rows}))
    flags = {"sampled_experts": experts} | {name: value for name, value in known.items() if name != "prompts"}
    flags |= {"strengths": ",".join(f"{strength:g}" for strength in strengths)}
    prompts = [word for prompt in known.get("prompts", ()) for word in ("--prompts", prompt)]
    return " ".join([_line("evaluate-steering", [run.name], flags), shlex.join(prompts)]).rstrip()


def _settings(session: Session, run_id: int, command: str) -> dict[str, Any]:
    """Settings of a measurement; none if it is older than the record of settings."""
    record = session.get(MeasurementRecord, (run_id, command))
    return {} if record is None else dict(record.settings)


def fit(config: Settings) -> str:
    """Return the command that made a run."""
    if config.get("privacy"):
        return f"# {config['name']} is of mxd lab protect, with {', '.join(config['parents'])}; see its run.json"
    if config.get("origin"):
        source = config["origin"]
        where = {"language_model": config["language_model"], "layer": config["layer"], "name": config["name"]}
        return _line("import", [source["source"]], {**where, **({"part": source["part"]} if source["part"] else {})})
    flags: dict[str, Any] = {}
    for name, value in config.items():
        if name in PARTS:
            flags |= {inner: setting for inner, setting in value.items() if inner not in NO_FLAGS}
        elif name not in NO_FLAGS:
            flags[name] = value
    if config.get("parents"):
        chosen = {name: flags[name] for name in OF_FINE_TUNING if name in flags}
        seed = flags["data_seed"] if flags.get("data_seed") is not None else flags["seed"]
        return _line("finetune", sorted(config["parents"]), {**chosen, "seed": seed})
    flags["num_experts"] = flags.get("num_experts") or "auto"
    if config.get("language_model_dtype") in ("float32", "bfloat16"):
        flags["dtype"] = config["language_model_dtype"]
    return _line("lab train" if "experimental" in config else "train", [config["language_model"]], flags)


DEFAULTS = {
    name: field.default
    for part in (TrainConfig, TextConfig, OptimizerConfig, RegularizationConfig)
    for name, field in part.model_fields.items()
}
OTHER_SEEDS = 100
"""Added to a seed: comparisons of experts may name runs of the next seeds, which need not be here."""


def train_again_command(config: Settings) -> str | None:
    """Return the command that trains a run with another seed, without the settings that are defaults. None if training
    did not make the run."""
    if any(config.get(name) for name in ("privacy", "origin", "parents")):
        return None

    def chosen(settings: Settings) -> dict[str, Any]:
        values = {name: chosen(value) if name in PARTS else value for name, value in settings.items()}
        return {
            name: value for name, value in values.items() if name == "language_model" or value != DEFAULTS.get(name)
        }

    return fit(chosen({**config, "name": f"{config['name']}-again", "seed": config["seed"] + OTHER_SEEDS}))


def index_command(run: RunRecord) -> str:
    """Return the command that indexes a run on its training text."""
    return _line("index", [run.name], {"dataset": run.text, "tokens": "1M"})


def _evaluate(record: EvaluationRecord) -> str:
    result = record.result
    flags = {name: value for name, value in record.settings.items() if name != "text"}
    flags |= {**record.settings["text"], "dataset": record.text}
    # All flags but these two have a value.
    switches = []
    if "runs" in result:
        switches.append("--layer-by-layer" if "steps" in result else "--together")
    if result.get("seen_text"):
        switches.append("--seen-text")
    names = result["runs"] if "runs" in result else [result["run"]]
    return " ".join([_line("evaluate", names, flags), *switches])


def _line(verb: str, positional: Sequence[str], flags: Settings) -> str:
    words = ["mxd", *verb.split(), *positional]
    for name, value in flags.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
