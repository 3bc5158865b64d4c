"""Finding experts by words, by automatic labels, and those that fire on a passage."""

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.database.engine import StoredExample, reading
from mxd.backend.queries.automatic_labels import FIELDS, ShownLabels
from mxd.backend.queries.search import Hit, firing, match_at_peak, merged, ranked, related_hits, search_run
from mxd.backend.schemas.experts import AutomaticLabel, SearchHit, SearchResult
from mxd.backend.schemas.routing import PassageRequest
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, IndexRecord
from tests.helpers.databases import ACTIVE, NUM_EXPERTS

PATH = "/api/runs/first"


@pytest.fixture
def labelled(own_client: TestClient) -> Iterator[TestClient]:
    """A client of a server where three experts have labels."""
    for expert, label in ((3, "Foxes, 100 % old"), (150, "hounds"), (151, "hound")):
        assert own_client.patch(f"{PATH}/experts/{expert}", json={"label": label}).status_code == 204
    yield own_client


def hits(client: TestClient, typed: str, **more: Any) -> list[tuple[int, str]]:
    """(expert, where it was found) of each hit."""
    answer = client.get("/api/search", params={"runs": "first", "text": typed, **more}).raise_for_status()
    return [(hit["expert"], hit["matched"]) for hit in answer.json()["hits"]]


def found_in_page(client: TestClient, typed: str) -> set[int]:
    """Experts of the table under a search."""
    page = client.get(f"{PATH}/experts", params={"search": typed, "limit": 200}).json()
    assert page["matching"] == len(page["experts"])
    return {row["expert"] for row in page["experts"]}


def test_experts_of_a_token_are_sorted_by_its_share_which_is_returned(client: TestClient) -> None:
    # Expert 2 is active on "c" mostly and 1 once; so are those 26 further on.
    answer = client.get("/api/search", params={"runs": "first", "text": "c", "limit": 100}).json()["hits"]
    by_token = [hit for hit in answer if hit["matched"] == "token"]
    found = [hit["expert"] for hit in by_token]
    assert set(found) >= {2, 28, 54, 1, 27}
    assert found.index(2) < found.index(1)
    for hit in by_token:
        row = client.get(f"{PATH}/experts", params={"among": hit["expert"]}).json()["experts"][0]
        shares = {each["text"]: each["share"] for each in row["top_tokens"] if each["text"].strip()[:1] in ("c", "C")}
        assert hit["token_share"] == pytest.approx(shares[hit["token"]])
        assert shares[hit["token"]] == max(shares.values())
    assert all(hit["token"] is None for hit in answer if hit["matched"] != "token")


def test_matching_examples_are_returned(client: TestClient) -> None:
    answer = client.get("/api/search", params={"runs": "first", "text": "fox sa", "limit": 7}).json()["hits"]
    sequences = [hit["example"]["sequence"] for hit in answer]
    assert answer and len(sequences) == len(set(sequences))
    for hit in answer:
        assert hit["matched"] == "example"
        assert "".join(hit["example"]["tokens"]) == "the old fox sang."[:16]
    assert len({hit["expert"] for hit in answer}) == len(answer)
    assert found_in_page(client, "fox sa") == set(range(ACTIVE))


@given(st.text(min_size=1, max_size=40))
@example('"')
@example("* AND (NOT")
@example("NEAR(a b)")
@example("body:x")
@example("a\0b")
@example("'; DROP TABLE runs; --")
@example("-")
@example("ﬁ ΣΑΣ ß")
def test_an_empty_search_is_an_error(client: TestClient, typed: str) -> None:
    for path, params in (("/api/search", {"runs": "first", "text": typed}), (f"{PATH}/experts", {"search": typed})):
        answer = client.get(path, params=params)
        assert answer.status_code == 200, answer.text


def test_searches_follow_a_new_index(own_client: TestClient, own: Engine) -> None:
    assert 2 in [expert for expert, _ in hits(own_client, "c", limit=100)]
    with Session(own) as session, session.begin():
        session.get_one(ExpertRecord, (1, 2)).top_tokens = []
        index = session.get_one(IndexRecord, 1)
        index.created_at = index.created_at.replace(year=index.created_at.year + 1)
    assert 2 not in [expert for expert, _ in hits(own_client, "c", limit=100)]


def test_labels_come_first_and_exact_matches_before_longer_ones(labelled: TestClient) -> None:
    assert hits(labelled, "hound")[:2] == [(151, "label"), (150, "label")]
    assert found_in_page(labelled, "HOUND") == {150, 151}
    assert hits(labelled, "100 %") == hits(labelled, "old", limit=1) == [(3, "label")]
    assert hits(labelled, "100 _") == []
    assert "label" not in dict(hits(labelled, "ounds")).values(), "no parts of words"
    assert labelled.patch(f"{PATH}/experts/3", json={"label": "東京の狐"}).status_code == 204
    assert hits(labelled, "狐") == [(3, "label")]
    for typed in ("46", " #46 ", "Expert 46", "expert46"):
        assert hits(labelled, typed)[0] == (46, "id")
        assert hits(labelled, typed, limit=1) == [(46, "id")]
    for other in (str(NUM_EXPERTS), "9" * 30, "4 6", "4.6", "²"):
        assert "id" not in dict(hits(labelled, other)).values()


def test_related_words_find_the_labels_of_users_and_the_experts_that_fire_on_them(labelled: TestClient) -> None:
    services = labelled.app.state.services  # type: ignore[attr-defined]
    browsed, vocabulary = services.run_cache.of("first"), services.runs.run("first").vocabulary

    def related(typed: str, words: dict[str, float]) -> tuple[tuple[str, ...], list[Hit]]:
        with reading(services.database) as session:
            tokens = services.run_cache.tokens(session, browsed)
            return related_hits(browsed, tokens, typed, words, 20, vocabulary)

    _, found = related("pets", {"hound": 0.9, "foxes": 0.6, "lion": 0.1})
    assert [(hit["expert"], hit["matched"], hit["word"].lower(), hit["relation"]) for hit in found] == [
        (151, "label", "hound", 0.45),
        (3, "label", "foxes", 0.3),
    ]
    words, of_tokens = related("of the", {"c": 0.5, "zebra": 0.4})
    assert words == ("c",)
    # Experts whose every second active token is a “c” come before those with a single one. Rare ones are left out.
    first = [hit["expert"] for hit in of_tokens if hit["token_share"] == 0.5]
    assert first and all(expert % 26 == 2 for expert in first)
    assert [hit["expert"] for hit in of_tokens][: len(first)] == first
    assert {hit["matched"] for hit in of_tokens} == {"related"}
    assert {hit["relation"] for hit in of_tokens[: len(first)]} == {0.25}  # half of the tokens, a relation of 0.5


def test_experts_are_sorted_by_how_many_of_their_top_examples_match(client: TestClient) -> None:
    def peaks(expert: int) -> list[str]:
        page = client.get(f"{PATH}/experts/{expert}/examples", params={"bin": 0, "limit": 8}).json()["examples"]
        texts = [("".join(each["tokens"][: each["position"]]), "".join(each["tokens"])) for each in page]
        spans = ((len(before), re.finditer(r"\w+", text)) for before, text in texts)
        return [next((w[0] for w in words if w.start() <= at < w.end()), "") for at, words in spans]

    app: Any = client.app
    services = app.state.services
    browsed, vocabulary = services.run_cache.of("first"), services.runs.run("first").vocabulary
    word = next(word for word in peaks(2) if word)
    with reading(services.database) as session:
        tokens = services.run_cache.tokens(session, browsed)
        result = search_run(session, browsed, tokens, word, {"c": 0.5}, 40, vocabulary)
    assert len({hit.expert for hit in result.hits}) == len(result.hits)
    for hit in result.hits:
        closeness = [1.0 if peak == word else 0.5 if peak in result.words else 0.0 for peak in peaks(hit.expert)]
        assert (hit.matching_examples, hit.top_examples) == (sum(each > 0 for each in closeness), len(closeness))
        assert hit.closeness == pytest.approx(sum(closeness) / max(1, len(closeness)))
    order = [(not hit.is_named, -round(hit.closeness, 1)) for hit in result.hits]
    assert any(hit.matching_examples for hit in result.hits) and order == sorted(order)


def test_the_layers_are_ranked_together() -> None:
    clear = {"labeller": "features", "balanced_accuracy": 0.9, "precision": 1.0, "recall": 1.0, "f1": 1.0}
    weak = clear | {"precision": 0.9, "recall": 0.01, "f1": 0.02}

    unmatched = dict.fromkeys(SearchHit.model_fields) | {"run": "r", "top_tokens": (), "is_named": False}
    unmatched |= {"top_examples": 8, "closeness": 0.0, "density": 0.1}

    def hit(expert: int, matched: str, matching: int, **more: Any) -> SearchHit:
        found = {"expert": expert, "layer": expert // 10, "matched": matched, "matching_examples": matching}
        return SearchHit.model_validate(unmatched | found | more)

    def label(scores: dict[str, Any], is_clear: bool) -> AutomaticLabel:
        return AutomaticLabel(**scores, label="“fox”", test_examples=20, is_clear=is_clear, weaknesses=[])

    page = {"bin": 0, "rank": 0, "sequence": 1, "position": 0, "activation": 1.0, "tokens": ("a",), "active": ()}
    example = page | {"token_ids": (5,)}
    first = [
        hit(11, "id", 0),
        hit(12, "label", 0, label="Foxes", is_named=True),
        hit(13, "label", 0, automatic=label(clear, True), is_named=True),
        hit(15, "related", 5, automatic=label(weak, False), closeness=0.6),
        hit(14, "related", 8, automatic=label(clear, True), closeness=0.28),
        hit(10, "related", 8, automatic=label(weak, False), closeness=0.28),
        hit(16, "token", 3, token_share=0.2),
        hit(19, "token", 3, token_share=0.5),
        hit(17, "label", 2, automatic=label(weak, False), relation=0.1),
    ]
    last = [hit(18, "example", 0, automatic=label(clear, True), example=example)]
    other_layer = [hit(21, "token", 4, closeness=0.5), hit(22, "example", 0, example=example)]
    found = merged(
        [SearchResult(words=("a", "b"), hits=(*last, *first[::-1])), SearchResult(words=("b",), hits=other_layer)]
    )
    assert [hit.expert for hit in found.hits] == [11, 12, 13, 15, 21, 14, 10, 19, 16, 17, 18], (
        "expert 22 has the same example"
    )
    assert found.words == ("a", "b")


@pytest.mark.parametrize(
    ("label", "named"),
    [
        *[("“fox” after “old”", True), ("“sang” after “fox”", False), ("After “fox”", False)],
        *[("“after” or “fox”", True), ("English: “the” of “fox” inside brackets", True)],
    ],
)
def test_labels_name_what_the_expert_fires_on(own_client: TestClient, own: Engine, label: str, named: bool) -> None:
    with Session(own) as session, session.begin():
        scores = {"balanced_accuracy": 0.9, "precision": 1.0, "recall": 1.0, "test_examples": 20}
        key = {"run_id": 1, "expert": 5, "labeller": "features", "created_at": datetime.now(UTC)}
        session.merge(AutomaticLabelRecord(**key, label=label, **scores))
    answer = own_client.get("/api/search", params={"runs": "first", "text": "FOX", "limit": 100}).json()["hits"]
    (hit,) = (hit for hit in answer if hit["expert"] == 5)
    assert (hit["matched"], hit["is_named"]) == ("label", named)


def test_a_description_is_searched_with_the_language_model(live_client: TestClient) -> None:
    row = live_client.get("/api/runs/small/experts?sort=density&order=desc&limit=1").json()["experts"][0]
    word = next(token["text"].strip() for token in row["top_tokens"] if token["text"].strip())
    answer = live_client.get(
        "/api/search", params={"by": "related", "text": word, "runs": ["small"], "limit": 100}
    ).json()
    assert (row["expert"], "small") in [(hit["expert"], hit["run"]) for hit in answer["hits"]]
    unknown = live_client.get("/api/search", params={"by": "related", "text": word, "runs": ["none"]})
    assert unknown.json()["error"]["code"] == "run-not-found"


RUN = "/api/runs/small"
TEXT = "the old fox sang"


def search(client: TestClient, **more: Any) -> Any:
    body = {"text": TEXT, "limit": 200, **more}
    return client.post(f"{RUN}/search/passage", json=body).raise_for_status().json()


def test_results_equal_the_routing_of_the_text_and_of_a_token(live_client: TestClient) -> None:
    tokens = live_client.post(f"{RUN}/routing", json={"text": TEXT}).json()["tokens"]
    mass: dict[int, float] = defaultdict(float)
    for expert in [expert for token in tokens if not token["start"] for expert in token["experts"]]:
        mass[expert["expert"]] += expert["activation"]
    found = search(live_client)
    assert {hit["expert"]: hit["mass"] for hit in found["hits"]} == pytest.approx(dict(mass))
    assert found["firing"] == found["matching"] == len(mass)
    assert [hit["mass"] for hit in found["hits"]] == sorted((hit["mass"] for hit in found["hits"]), reverse=True)
    assert [token["text"] for token in found["tokens"]] == [token["text"] for token in tokens]
    label = f"/api/runs/small/experts/{found['hits'][-1]['expert']}"
    live_client.patch(label, json={"label": "fox"}).raise_for_status()
    assert search(live_client, weak_last=True)["hits"][0]["label"] == "fox"
    live_client.patch(label, json={"label": None}).raise_for_status()
    at_token = search(live_client, position=2)["hits"]
    assert {hit["expert"] for hit in at_token} == {expert["expert"] for expert in tokens[2]["experts"]}
    assert all(hit["peak"] == 2 and hit["share"] == 1 for hit in at_token)


def test_filters_do_not_reduce_the_number_of_results(live_client: TestClient) -> None:
    whole = search(live_client, by="lift")
    densities = sorted(hit["density"] for hit in whole["hits"] if hit["density"])
    middle = densities[len(densities) // 2]
    kept = [hit["expert"] for hit in whole["hits"] if hit["density"] and hit["density"] >= middle]
    few = search(live_client, by="lift", min_density=middle, limit=3)
    assert [hit["expert"] for hit in few["hits"]] == kept[:3]
    assert few["matching"] == len(kept)
    found = [hit for hit in whole["hits"] if hit["lift"] is not None]
    assert all(hit["lift_low"] <= hit["lift"] <= hit["lift_high"] for hit in found)
    lows = [hit["lift_low"] for hit in found if len(hit["active"]) > 1 and hit["lift_low"] > 1]
    assert lows == sorted(lows, reverse=True)


def test_experts_active_on_many_tokens_come_before_a_single_token_of_a_rare_one() -> None:
    single, steady = firing([(1, 1.0)], 40, 0.00001), firing([(it, 1.0) for it in range(30)], 40, 0.02)
    assert single["lift_low"] > steady["lift_high"]
    common = firing([(0, 2.0), (1, 2.0)], 40, 0.05)
    assert ranked({0: common, 1: single, 2: steady}, PassageRequest(text="a", by="lift"), weak={2}) == [2, 1, 0]
    assert ranked({1: single, 2: steady}, PassageRequest(text="a", by="lift", weak_last=True), weak={2}) == [1, 2]
    assert firing([(1, 1.0)], 40, None)["lift_low"] is None


@pytest.mark.parametrize(
    ("labels", "word", "found"),
    [
        ((("“/” after numbers", 1.0), ("Numbers after “0.”", 0.9), ("English: “number”", 0.8)), "number", [2, 1, 0]),
        ((("“making”", 1.0), ("“village”, “kingdom”", 0.9), ("“king”", 0.8)), "king", [2, 1]),
        ((("“well”", 1.0), ("“they”, “we”", 0.9), ("“we”", 0.8), ("“power”", 0.7)), "we", [2, 1, 0]),
        ((("Numbers", 0.6), ("Numbers", 0.66)), "NUMBERS", [1]),
    ],
)
def test_whole_words_come_before_beginnings(labels: tuple[tuple[str, float], ...], word: str, found: list[int]) -> None:
    assert FIELDS[:3] == ("label", "labeller", "balanced_accuracy")
    rows = {expert: (label, "features", accuracy, 1.0, 1.0, 20) for expert, (label, accuracy) in enumerate(labels)}
    assert ShownLabels(rows).like(word) == found


def test_imported_labels_are_found_and_their_score_is_not_measured() -> None:
    rows = {0: ("Numbers", "neuronpedia", 0.0, None, None, 0), 1: ("Numbers", "features", 0.7, 1.0, 1.0, 20)}
    labels = ShownLabels(rows)
    assert [(labels.of(expert) or {})["balanced_accuracy"] for expert in rows] == [None, 0.7]
    assert labels.like("numbers") == [0, 1]


def test_words_of_labels_are_found_also_with_a_low_recall() -> None:
    rows = {
        1: ("“determination” or “frustration”", "features", 0.75, 0.8, 0.05, 12),
        2: ("“calm” after “frustration”", "features", 0.9, 1.0, 1.0, 20),
        3: ("“frustration”", "features", 0.9, 0.1, 1.0, 20),
        4: ("“frustration”", "features", 0.5, None, 0.0, 20),
    }
    assert ShownLabels(rows).naming["frustration"] == [(1, 0.5), (2, 0.5)]


@pytest.mark.parametrize(
    ("texts", "position", "at_peak"),
    [(["b", "angers", *[" on"] * 12], 13, None), ([" with", " anger", "."], 1, True), ([" with", " anger"], 0, False)],
)
def test_examples_match_at_the_start_of_a_word(texts: list[str], position: int, at_peak: bool | None) -> None:
    vocabulary: Any = SimpleNamespace(texts=lambda ids: [texts[id] for id in ids])
    row = StoredExample(0, 0, 0, 0, position, 1.0, b"", list(range(len(texts))))
    assert match_at_peak(row, [" anger"], vocabulary) is at_peak


@pytest.mark.parametrize(
    ("precision", "recall", "density", "score", "weaknesses"),
    [
        (1.0, 0.05, 0.001, 0.1 / 1.05, ["recall below 10 %"]),
        (1.0, 0.1, 0.001, 0.2 / 1.1, []),
        (0.24, 0.05, 0.001, 0.024 / 0.29, ["precision below 25 %", "recall below 10 %"]),
        (None, None, 0.1, None, []),
        (None, 0.0, 0.0001, None, []),
        (None, 0.0, 0.001, 0.0, ["recall below 10 %"]),
    ],
)
def test_accurate_labels_may_be_weak(
    precision: float | None, recall: float | None, density: float, score: float | None, weaknesses: list[str]
) -> None:
    labels = ShownLabels({7: ("Numbers", "features", 0.9, precision, recall, 20)}, {7: density})
    label = labels.of(7)
    assert label is not None
    assert (label["weaknesses"], label["is_clear"]) == (weaknesses, not weaknesses)
    assert label["f1"] == pytest.approx(score)
    assert labels.best_first == ([] if weaknesses else [7])
