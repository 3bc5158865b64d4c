"""Ablations and amplifications of experts, against whole forward passes with only that expert changed."""

import numpy as np
import pytest
import torch
from sqlalchemy import update
from sqlalchemy.orm import Session

from mxd.trainer.analysis.ablation import (
    build_ablations,
    get_indexed_run,
    read_sequences,
    sample_examples,
    share_sequences,
)
from mxd.trainer.config.analysis import AblationConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.inference.units import column_values, random_experts
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AblationRecord, IndexRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.runs import World, random_layer

SETTINGS = AblationConfig(examples_per_bin=2)


@pytest.fixture(name="run")
def indexed_run(world: World, run: Run) -> Run:
    """An indexed run whose layer is random, so that every expert matters."""
    run.__dict__["layer"] = random_layer(widths=(16, 24, 16), num_experts=40, k=4)
    world.index(run)
    return run


def measure(world: World, run: Run, config: AblationConfig = SETTINGS, callbacks: Callbacks = NO_CALLBACKS) -> int:
    """Number of measured experts."""
    return build_ablations(run, config, world.language_model, world.database, callbacks=callbacks).experts


def test_effects_equal_those_of_whole_forward_passes(world: World, run: Run) -> None:
    measure(world, run)
    records = world.rows(AblationRecord)
    with Session(world.database) as session:
        record = get_indexed_run(session, run.name)
        examples, sequences = sample_examples(session, record, 2), read_sequences(session, record)
        p99_N = column_values(session, record, ExpertRecord.p99)
    for ablation in records[:6]:
        own = examples.select(np.flatnonzero(examples.expert == ablation.expert))
        losses, divergences, weights = [], [], []
        for sequence, position, weight in zip(own.sequence, own.position, own.weight, strict=True):
            ids = sequences[sequence]
            original = changed_log_p(world, run, ids, position, ablation.expert, None)
            ablated = changed_log_p(world, run, ids, position, ablation.expert, 0.0)
            amplified = changed_log_p(world, run, ids, position, ablation.expert, float(p99_N[ablation.expert]))
            divergences.append((weight, float((original.exp() * (original - amplified)).sum())))
            if position + 1 < len(ids):
                losses.append(float(original[ids[position + 1]] - ablated[ids[position + 1]]))
                weights.append(weight)
        assert ablation.loss_increase == pytest.approx(np.average(losses, weights=weights), rel=1e-3, abs=1e-5)
        total = sum(weight for weight, _ in divergences)
        assert ablation.kl_amplified == pytest.approx(sum(w * kl for w, kl in divergences) / total, rel=1e-3, abs=1e-5)


def changed_log_p(
    world: World, run: Run, ids: list[int], position: int, expert: int, added: float | None
) -> torch.Tensor:
    """Next-token log p at a position. ``added`` 0 ablates the expert; a larger value is added to its activation."""
    layer = run.layer

    def answer(x_BTI: torch.Tensor, mlp: object) -> torch.Tensor:
        output_BTO: torch.Tensor = mlp().clone()  # type: ignore[operator]
        if added is None:
            return output_BTO
        x_1I = x_BTI[0, position : position + 1]
        routing = layer.route(x_1I)
        activation = float((routing.activations_TK * (routing.indices_TK == expert)).sum())
        matrix_HO = layer.expert_matrix(expert)  # type: ignore[operator]
        hidden_1H = layer.encode(x_1I)  # type: ignore[operator]
        output_BTO[0, position] += (added if added else -activation) * (hidden_1H @ matrix_HO)[0]
        return output_BTO

    with torch.no_grad(), world.language_model.replace_mlps({run.config.layer: answer}):
        return world.language_model.logits(torch.tensor([ids]))[0, position].log_softmax(-1)


def test_weights_sum_to_the_active_tokens(world: World, run: Run) -> None:
    with Session(world.database) as session:
        examples = sample_examples(session, get_indexed_run(session, run.name), 2)
    active = {row.expert: row.active_tokens for row in world.rows(ExpertRecord)}
    for expert in np.unique(examples.expert).tolist():
        assert examples.weight[examples.expert == expert].sum() == pytest.approx(active[expert])


def test_the_expert_table_has_the_columns_it_is_sorted_by(world: World, run: Run) -> None:
    experts = measure(world, run)
    table, ablations = world.rows(ExpertRecord), world.rows(AblationRecord)
    assert experts == len(ablations) > 10
    unmeasured = set(range(40)) - {ablation.expert for ablation in ablations}
    assert [row.expert for row in table if row.output_share == 0] == sorted(unmeasured)
    for ablation in ablations:
        expert = table[ablation.expert]
        assert (expert.loss_increase, expert.kl_amplified) == (ablation.loss_increase, ablation.kl_amplified)
        assert 0 <= expert.input_dependence <= 1 and 0 < expert.output_share <= 1
        assert ablation.promoted[0][1] > 0 > ablation.suppressed[0][1]
        (other,) = random_experts(np.array([row.density for row in table]), expert.expert)
        assert ablation.random_expert == other != expert.expert


def test_a_feature_always_adds_the_same_direction(world: World) -> None:
    run = world.train(method="transcoder")
    world.index(run)
    measure(world, run)
    assert all(ablation.input_dependence < 1e-4 for ablation in world.rows(AblationRecord))


def test_missing_inputs_are_reported(world: World) -> None:
    run = world.train()
    with pytest.raises(UserError, match="mxd index small"):
        measure(world, run)
    world.index(run, examples_per_bin=0)
    with pytest.raises(UserError, match="examples-per-bin 1"):
        measure(world, run)
    world.index(run, examples_per_bin=1)
    with pytest.raises(CancelledError):
        measure(world, run, callbacks=Callbacks(is_cancelled=lambda: True))
    assert world.rows(AblationRecord) == []


def test_chosen_experts_are_measured_with_their_random_experts_and_keep_the_others(world: World, run: Run) -> None:
    measure(world, run)
    before = {record.expert: record for record in world.rows(AblationRecord)}
    first = next(iter(before))
    chosen = AblationConfig(examples_per_bin=2, experts=(first,))
    experts = measure(world, run, chosen)
    after = {record.expert: record for record in world.rows(AblationRecord)}
    assert experts == len({first, before[first].random_expert})
    assert after.keys() == before.keys()
    for expert, record in after.items():
        assert record.kl_amplified == pytest.approx(before[expert].kl_amplified, rel=1e-4, abs=1e-7)
        assert record.loss_increase == pytest.approx(before[expert].loss_increase, rel=1e-4, abs=1e-6)
    world.index(run, tokens=320)
    assert world.rows(AblationRecord) == []


def test_effects_of_an_earlier_index_are_not_stored(world: World, run: Run) -> None:
    def index_again(_done: int, _total: int, _note: str) -> None:
        with writing(world.database) as session:
            session.execute(update(IndexRecord).values(created_at=utc_now()))

    with pytest.raises(UserError, match="was indexed again or removed meanwhile"):
        measure(world, run, callbacks=Callbacks(index_again))
    assert world.rows(AblationRecord) == []


def test_all_experts_are_measured_on_active_tokens_of_few_sequences(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mxd.trainer.analysis.ablation.SHARED_PAIRS", 3)
    with Session(world.database) as session:
        record = get_indexed_run(session, run.name)
        stored, sequences = sample_examples(session, record, 1), read_sequences(session, record)
    shared = share_sequences(stored, sequences, run, world.language_model, seed=0)
    assert np.array_equal(shared.expert, stored.expert)
    moved_P = (shared.sequence != stored.sequence) | (shared.position != stored.position)
    drawn = shared.select(np.flatnonzero(np.isin(shared.expert, np.unique(shared.expert[moved_P]))))
    assert len(drawn.expert) > len(stored.expert) / 4
    assert len(np.unique(drawn.sequence)) <= len(np.unique(stored.sequence)) / 4
    assert np.all(drawn.weight == 1)
    for expert, sequence, position, _weight in zip(*drawn, strict=True):
        x_TI = world.language_model.mlp_inputs([run.config.layer], torch.tensor([sequences[sequence]]))
        assert expert in run.layer.route(x_TI[run.config.layer][position : position + 1].clone()).indices_TK


def test_interventions_in_rows_of_their_own_bound_the_rows_of_a_forward_pass(
    world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(world, run)
    appended = world.rows(AblationRecord)
    rows: list[int] = []
    residual = world.language_model.residual

    def counted(ids_BT: torch.Tensor) -> torch.Tensor:
        rows.append(len(ids_BT))
        return residual(ids_BT)

    monkeypatch.setattr(world.language_model, "can_append_variants", lambda _layer: False)
    monkeypatch.setattr(world.language_model, "residual", counted)
    measure(world, run)
    assert max(rows) == 1 + 4 * 16
    for one, other in zip(appended, world.rows(AblationRecord), strict=True):
        assert other.kl_ablated == pytest.approx(one.kl_ablated, rel=1e-3, abs=1e-6)
