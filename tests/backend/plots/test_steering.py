"""The figure of strength sweeps, once there is something to draw."""

from __future__ import annotations

from fastapi.testclient import TestClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.trainer.config import SteeringEvaluationConfig
from mxd.trainer.storage.database.tables import MeasurementRecord, SteeringStrengthRecord


def result(expert: int, kind: str, strength: float, kl: float) -> SteeringStrengthRecord:
    return SteeringStrengthRecord(
        run_id=1, expert=expert, kind=kind, strength=strength, kl=kl, loss=2.0, self_similarity=0.5, promoted_share=0.1
    )


def test_curves_are_medians_over_experts_and_start_at_the_baseline(own: Engine, own_client: TestClient) -> None:
    with Session(own) as session, session.begin():
        for expert, kl in ((3, 0.1), (4, 0.2), (5, 0.9)):
            session.add(result(expert, "none", 0.0, 0.0))
            session.add_all(result(expert, kind, 2.0, kl) for kind in ("expert", "random_expert", "random_direction"))
    figure = own_client.get("/api/figures/steering", params={"run": "first"}).json()
    assert figure["drawn"] == 3
    assert [trace["name"] for trace in figure["data"][:3]] == [
        "Expert",
        "Random expert of its density",
        "Random direction",
    ]
    assert (figure["data"][0]["x"], figure["data"][0]["y"]) == ([0.0, 2.0], [0.0, 0.2])
    assert len(figure["data"]) == 12
    assert _steering_note(own_client) == "3 experts"
    with Session(own) as session, session.begin():
        settings = SteeringEvaluationConfig().model_dump(mode="json")
        session.add(MeasurementRecord(run_id=1, command="evaluate-steering", settings=settings))
    assert _steering_note(own_client) == "3 experts, 3 samples of 24 tokens for each of 3 prompts per strength"


def _steering_note(client: TestClient) -> str:
    chapters = client.get("/api/runs/first/report").json()["chapters"]
    (section,) = next(one["sections"] for one in chapters if one["key"] == "steering")
    note: str = section["figure"]["note"]
    return note


def test_a_missing_measurement_names_its_command(client: TestClient) -> None:
    answer = client.get("/api/figures/steering", params={"run": "first"})
    assert (answer.status_code, answer.json()["total"]) == (200, 0)
    assert "mxd evaluate-steering first" in answer.json()["title"]
