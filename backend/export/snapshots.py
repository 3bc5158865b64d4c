"""Origin of a snapshot: the labels of its experts, the weights of its runs, and the command that repeats it."""

import shlex
from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import inspect
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import LabelRecord, labels_of
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.trainer.config.analysis import CircuitConfig, ContinuationTarget, DifferenceTarget, ExpertTarget, target_tokens
from mxd.trainer.config.steering import Sampling, SteeringConfig
from mxd.trainer.errors import NotFoundError
from mxd.trainer.storage.run import Run, without_folder
from mxd.trainer.utils.snapshot import Origin


def origin_of(
    session: Session | None,
    runs: Sequence[Run],
    experts: Mapping[str, Collection[int]],
    command: Sequence[str],
    seeds: Mapping[str, int] | None = None,
) -> Origin:
    """Describe where a snapshot comes from, without labels if there is no ``session``. ``experts``: run -> experts that
    it names. ``command``: words of the command that repeats it. ``seeds``: what is random besides the training ->
    seed."""
    labels = {} if session is None else names_in(session, experts)
    training = {"training": runs[0].config.seed} if runs[0].config.origin is None else {}
    return Origin(
        model=without_folder(runs[0].config.language_model),
        weights={run.name: _digest(run) for run in runs},
        seeds={**training, **(seeds or {})},
        command=shlex.join(command),
        labels=labels,
    )


def _digest(run: Run) -> str:
    from mxd.trainer.storage.run_sets import weights_digest  # imports PyTorch

    try:
        return weights_digest([run])
    except NotFoundError:
        return "none"  # imported features


def names_in(session: Session, experts: Mapping[str, Collection[int]]) -> dict[tuple[str, int], str]:
    """Return the names of experts by run and number: the user's label, else the automatic one."""
    from mxd.trainer.storage.run_records import find_record  # imports PyTorch

    has_annotations = inspect(session.connection()).has_table(LabelRecord.__tablename__)
    names: dict[tuple[str, int], str] = {}
    for run, numbers in experts.items():
        automatic = shown_labels(session, find_record(session, run), numbers)
        own = labels_of(session, run, numbers) if has_annotations else {}
        # A weak label says so, as on the dashboard's pages.
        names |= {(run, at): it.label if it.is_clear else f"{it.label}, weak label" for at, it in automatic.items()}
        names |= {(run, expert): label for expert, label in own.items()}
    return names


# ---------------------------------------------------------------- commands


def steer_command(run: str, config: SteeringConfig) -> list[str]:
    flags = config.model_dump(exclude_defaults=True, exclude={"prompt", "edits", "positions", "sampling"})
    flags |= config.sampling.model_dump()  # in full, so that the command outlives a change of the defaults
    words = [word for edit in config.edits for word in ("--edit", str(edit))]
    words += [f"--stop={text}" for text in flags.pop("stop", ())]
    words += [word for name, value in flags.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    if config.positions is not None:
        words += ["--positions", ",".join(map(str, config.positions)) or "none"]
    assert flags.keys() - {"mode", "scope", "k"} <= Sampling.model_fields.keys()
    return ["mxd", "steer", *_with_text([run], config.prompt, words)]


def route_command(run: str, text: str, k: int | None) -> list[str]:
    return ["mxd", "route", *_with_text([run], text, [] if k is None else ["--k", str(k)])]


def circuit_command(runs: Sequence[str], config: CircuitConfig) -> list[str]:
    target = config.target
    if isinstance(target, ContinuationTarget):
        words = [f"--continuation={target.text}"]
    elif isinstance(target, ExpertTarget):
        words = ["--target-expert", f"{target.run}/{target.expert}"]
    elif isinstance(target, DifferenceTarget):
        words = ["--target", str(target.token), "--against", str(target.other)]
    else:
        words = [word for token in target_tokens(target) for word in ("--target", str(token))]
    settings = config.model_dump(exclude_defaults=True, include={"position", "errors", "nodes"})
    words += [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return ["mxd", "circuit", *runs, f"--prompt={config.prompt}", *words]


def _with_text(names: Sequence[str], text: str, flags: Sequence[str]) -> list[str]:
    """A text that starts with a dash follows ``--``, because it would be read as a flag."""
    return [*flags, "--", *names, text] if text.startswith("-") else [*names, text, *flags]
