"""Values of the index that edits and comparisons need: units, medians for gate tests, random experts as controls."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from mxd.trainer.config.steering import Edit, GateTest, SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import UsageWarning
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import RunRecord

if TYPE_CHECKING:
    from mxd.trainer.storage.run import Run

AnyConfig = TypeVar("AnyConfig", bound=SteeringConfig)
AnySweep = TypeVar("AnySweep", bound=StrengthSweepConfig)
NEAREST = 16
"""Number of experts of nearest density from which a random one is drawn."""
NUM_CONTROLS = 20
"""Random experts with which it is compared what an expert writes."""


Units = Mapping[str, Mapping[int, float]]
"""Run -> expert -> the activation that ``add``, ``set`` and gate tests count as one unit."""


def edit_units(
    config: SteeringConfig, steered: str, saved: Callable[[str], Mapping[int, float]], session: Session | None = None
) -> dict[str, dict[int, float]]:
    """Return the unit of every expert that a request edits, tests or uses as control, by run, the steered run first.

    It is the first of these that is known and not 0:

    1. the expert's 99th-percentile activation in the index;
    2. the one that indexing saved in the run's folder;
    3. 1, with a warning if an edit or a gate test counts in units.

    ``saved`` returns the units in the folder of a run, by its name. Edits without a run refer to ``steered``. The
    session is of the database that may hold the index.
    """
    experts: dict[str, set[int]] = {steered: set()}
    for name, expert in config.experts(steered):
        experts.setdefault(name, set()).add(expert)
    one_of = ExpertRecord.expert.in_(set().union(*experts.values()))
    indexed = {} if session is None else _indexed_units(session, experts, one_of)
    counted = {(edit.run or steered, edit.expert) for edit in config.edits if edit.mode in ("add", "set")}
    counted |= {place for place, test in _tests(config, steered) if test.level not in (0, "median")}
    units: dict[str, dict[int, float]] = {}
    for name, chosen in experts.items():
        known = {expert: indexed.get((name, expert)) or saved(name).get(expert) or 0.0 for expert in sorted(chosen)}
        unknown = [str(expert) for expert, unit in known.items() if not unit and (name, expert) in counted]
        if unknown:
            warnings.warn(
                f"the 99th percentile of expert {', '.join(unknown)} is unknown, so one unit is an activation of 1. "
                f"Run 'mxd index {name}' to measure it.",
                UsageWarning,
                stacklevel=2,
            )
        units[name] = {expert: unit or 1.0 for expert, unit in known.items()}
    return units


def all_units(runs: Sequence[Run], session: Session | None = None) -> Units:
    """Units of all experts, by the order of ``edit_units``; dead experts have none. Empty without an index."""
    units = {run.name: dict(run.units) for run in runs}
    if session is not None:
        for (name, expert), p99 in _indexed_units(session, units, ExpertRecord.p99 > 0).items():
            units[name][expert] = p99
    return units


def _indexed_units(session: Session, runs: Iterable[str], chosen: ColumnElement[bool]) -> dict[tuple[str, int], float]:
    query = (
        select(RunRecord.name, ExpertRecord.expert, ExpertRecord.p99)
        .join(ExpertRecord, ExpertRecord.run_id == RunRecord.id)
        .where(RunRecord.name.in_(runs), chosen)
    )
    return {(name, expert): p99 for name, expert, p99 in session.execute(query)}


def _tests(config: SteeringConfig, steered: str) -> Iterator[tuple[tuple[str, int], GateTest]]:
    for edit in config.edits:
        for test in edit.when.gates if edit.when else ():
            yield (test.run or edit.run or steered, test.expert), test


def median_in_units(record: ExpertRecord) -> float:
    """Median activation over the expert's active tokens, divided by its 99th percentile; 0 for a dead expert.
    Interpolates linearly inside the histogram bin that contains the median."""
    half = sum(record.histogram) / 2
    if not half or not record.p99:
        return 0.0
    for index, (total, count) in enumerate(zip(accumulate(record.histogram), record.histogram, strict=True)):
        if total >= half:
            place = index + 1 - (total - half) / count
            return place * record.histogram_high / len(record.histogram) / record.p99
    raise AssertionError("half of the counts is at most their sum")


def with_medians(session: Session, config: AnyConfig, steered: str) -> AnyConfig:
    """Replace ``median`` in gate tests by the expert's median in units. Tests of experts without an index keep
    ``median``, which steering reports. Edits without a run refer to ``steered``."""
    tested = {place for place, test in _tests(config, steered) if test.level == "median"}
    if not tested:
        return config
    names, experts = (set(values) for values in zip(*tested, strict=True))
    query = (
        select(RunRecord.name, ExpertRecord)
        .join(ExpertRecord, ExpertRecord.run_id == RunRecord.id)
        .where(RunRecord.name.in_(names), ExpertRecord.expert.in_(experts))
    )
    medians = {(name, record.expert): median_in_units(record) for name, record in session.execute(query)}

    def resolved(edit: Edit, test: GateTest) -> GateTest:
        level = medians.get((test.run or edit.run or steered, test.expert))
        if level is None or test.level != "median":
            return test
        return test.model_copy(update={"at_most" if test.above is None else "above": level})

    edits = []
    for edit in config.edits:
        if edit.when is not None:
            gates = tuple(resolved(edit, test) for test in edit.when.gates)
            edit = edit.model_copy(update={"when": edit.when.model_copy(update={"gates": gates})})
        edits.append(edit)
    return config.model_copy(update={"edits": tuple(edits)})


def column_values(session: Session, run: RunRecord, column: InstrumentedAttribute[float]) -> NDArray[np.float64]:
    """A column of the experts in the index, [N], such as ``ExpertRecord.density``; 0 without an index."""
    values_N = np.zeros(run.num_experts)
    for expert, value in session.execute(select(ExpertRecord.expert, column).where(ExpertRecord.run_id == run.id)):
        values_N[expert] = value
    return values_N


def random_experts(
    density_N: NDArray[np.floating], expert: int, count: int = 1, seed: int = 0, avoided: Collection[int] = ()
) -> list[int]:
    """Random active experts of similar density, with which an expert is compared everywhere.

    They are drawn from the ``NEAREST`` other ones of nearest density, or from ``2 * count`` if that is more. Of equal
    differences, lower numbers come first. The seed and the expert decide which are drawn. The list is shorter if
    there are fewer.
    """
    distance_N = np.where(density_N > 0, np.abs(density_N - density_N[expert]), np.inf)
    distance_N[[expert, *avoided]] = np.inf
    rank = min(max(NEAREST, 2 * count), len(distance_N)) - 1
    near_M = np.flatnonzero(distance_N <= np.partition(distance_N, rank)[rank])
    near_M = near_M[np.argsort(distance_N[near_M], kind="stable")][: rank + 1]
    nearest = near_M[np.isfinite(distance_N[near_M])].tolist()
    return random.Random((seed << 32) + expert).sample(nearest, min(count, len(nearest)))


def with_control(session: Session, config: AnySweep, steered: str) -> AnySweep:
    """Name the control expert of a sweep, unless it is given or the run has no index. Edits without a run refer to
    ``steered``."""
    if config.control is not None or config.edit >= len(config.edits):
        return config
    varied = config.edits[config.edit]
    run = session.scalar(select(RunRecord).where(RunRecord.name == (varied.run or steered)))
    if run is None or varied.expert >= run.num_experts:
        return config
    controls = random_experts(column_values(session, run, ExpertRecord.density), varied.expert)
    return config.model_copy(update={"control": controls[0]}) if controls else config
