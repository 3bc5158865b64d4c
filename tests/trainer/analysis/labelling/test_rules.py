"""Labels: rules for synthetic activity, labels read back as conditions, and answers of a language model over HTTP."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise

import numpy as np
import pytest
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling import llm_explainer as module
from mxd.trainer.analysis.labelling.features import (
    BLOCK_SEQUENCES,
    FEATURES,
    FeatureExtractor,
    Vocabulary,
    label_matches,
    token_kind,
)
from mxd.trainer.analysis.labelling.llm_explainer import Endpoint, EndpointError, ExplainResult, explain_experts
from mxd.trainer.analysis.labelling.rules import (
    ActiveTokens,
    BackgroundTokens,
    Condition,
    describe_rule,
    find_rules,
    label_experts,
    matches,
    score_rule,
)
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from tests.helpers.runs import World

WORDS = ["the", "der", "fox", "ran", ",", "red", "and"]
TOKENS = 4_000


@pytest.fixture
def text() -> list[str]:
    generator = np.random.default_rng(0)
    return [f" {word}" for word in generator.choice(WORDS, TOKENS)]


def find_label(text: list[str], active: list[int]) -> str:
    """Label of an expert that is active on the given tokens."""
    extractor = FeatureExtractor("<end>")
    features = extractor.extract(text)
    background = BackgroundTokens(features, np.arange(TOKENS))
    tokens = np.array(active)
    (best,) = find_rules(background, [ActiveTokens(tokens[:40], tokens, len(active) / TOKENS)])
    assert best is not None
    score = score_rule(best.rule, background, tokens[40:80], tokens)
    assert (score["balanced_accuracy"] or 0) > 0.95
    assert score["precision"] == pytest.approx(1.0)
    return describe_rule(best.rule, extractor.vocabularies)


def test_tokens_after_tokens_are_described(text: list[str]) -> None:
    pairs = list(enumerate(pairwise(text), start=1))
    for label, active in {
        "“fox”": [index for index, (_, word) in pairs if word == " fox"],
        "“fox” after “red”": [index for index, pair in pairs if pair == (" red", " fox")],
        "After “der”": [index for index, (before, _) in pairs if before == " der"],
    }.items():
        assert find_label(text, active) == label


def test_random_activity_gives_no_good_rule(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    tokens = np.sort(np.random.default_rng(1).choice(TOKENS, 40, replace=False))
    (best,) = find_rules(background, [ActiveTokens(tokens, tokens, 0.01)])
    assert best is None or best.objective < 0.2


def test_undefined_scores_are_none(text: list[str]) -> None:
    features = FeatureExtractor("<end>").extract(text)
    fox = int(features[0, text.index(" fox")])
    background = BackgroundTokens(features, np.flatnonzero(features[0] != fox))
    nothing = (Condition(0, (fox,)),)
    score = score_rule(nothing, background, np.flatnonzero(features[0] != fox)[:5], np.zeros(0, np.int64))
    assert score == {"balanced_accuracy": 0.5, "precision": None, "recall": None, "test_examples": 5}


def test_rules_of_several_experts_equal_those_of_each_alone(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    generator = np.random.default_rng(2)
    words = [np.flatnonzero([word == f" {chosen}" for word in text]) for chosen in WORDS]
    noise = [np.sort(generator.choice(TOKENS, 60, replace=False)) for _ in range(5)]
    experts = [ActiveTokens(tokens[:40], tokens, len(tokens) / TOKENS) for tokens in (*words, *noise)]
    together = find_rules(background, experts)
    alone = [find_rules(background, [expert])[0] for expert in experts]
    found, expected = ([best and (best.rule, best.objective) for best in each] for each in (together, alone))
    assert found == expected
    assert sum(best is not None for best in together) >= len(WORDS)


def test_labels_of_an_indexed_run_are_stored_with_scores_and_replaced(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd index small"):
        label_experts(run, world.database)
    world.index(run, tokens=3_000)
    result = label_experts(run, world.database)
    stored = world.rows(AutomaticLabelRecord)
    assert len(stored) == result.labelled > 0
    for label in stored:
        assert label.label
        assert label.labeller == "features"
        assert 0 <= label.balanced_accuracy <= 1
        assert all(share is None or 0 <= share <= 1 for share in (label.precision, label.recall))
    assert {label.expert for label in stored} <= {row.expert for row in world.rows(ExpertRecord) if row.active_tokens}
    assert label_experts(run, world.database).labelled == result.labelled
    assert [label.label for label in world.rows(AutomaticLabelRecord)] == [label.label for label in stored]
    world.index(run)
    assert world.rows(AutomaticLabelRecord) == []
    with pytest.raises(CancelledError):
        label_experts(run, world.database, callbacks=Callbacks(is_cancelled=lambda: True))
    assert world.rows(AutomaticLabelRecord) == []


def describe(**features: list[str]) -> str:
    vocabularies = {name: Vocabulary() for name in FEATURES}
    rule = tuple(
        Condition(FEATURES.index(name), tuple(vocabularies[name][text] for text in texts))
        for name, texts in features.items()
    )
    return describe_rule(rule, vocabularies)


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ({"before_two": ["<|endoftext|>once"]}, "After “once” at the start of a document"),
        ({"before": ["<|endoftext|>"]}, "At the start of a document"),
        ({"before": ["<|endoftext|>"], "start": ["the start of a document"]}, "At the start of a document"),
        ({"before_two": ["end<|endoftext|>", "once upon"]}, "After “once upon” or at the start of a document"),
        ({"token": ["<|endoftext|>", "."]}, "The end of a document or “.”"),
        ({"token": [" on"], "before": [","]}, "“on” after “,”"),
    ],
)
def test_a_document_separator_is_named(features: dict[str, list[str]], label: str) -> None:
    assert describe(**features) == label


END = "<|end|>"


def values(texts: list[str], feature: str) -> list[str]:
    """Values of a feature for each token."""
    extractor = FeatureExtractor(END)
    numbers = extractor.extract(texts)[FEATURES.index(feature)]
    return [extractor.vocabularies[feature].texts[number] for number in numbers]


STARTS = ["the start of a document", "", "", "the start of a sentence", "", "the start of a line"]


@pytest.mark.parametrize(
    ("feature", "texts", "expected"),
    [
        ("word", [" el", " pe", "que", "ño", "."], ["el", "pequeño", "pequeño", "pequeño", ""]),
        ("before", ["according", " to", " Law", "."], ["", "according", "to", "law"]),
        ("before_two", ["according", " to", " Law", "."], ["", "", "according to", "to law"]),
        ("start", [END, "One", " fox", ".", " Two", "\n", "three"], ["", *STARTS]),
        ("inside", ["f", "(", "a", ")", " b"], ["", "", "brackets", "brackets", ""]),
    ],
)
def test_features_of_tokens(feature: str, texts: list[str], expected: list[str]) -> None:
    assert values(texts, feature) == expected


@pytest.mark.parametrize(
    ("text", "word", "kind"),
    [
        (" 42", "42", "numbers"),
        ("\n\n", "", "line breaks"),
        ("   ", "", "spaces"),
        ("(", "", "opening brackets"),
        ("“", "", "quotation marks"),
        (",", "", "punctuation"),
        ("+", "", "signs"),
        (" The", "the", "capitalised words"),
        (" the", "the", "words"),
        (" pe", "pequeño", "beginnings of words"),
        ("que", "pequeño", "middles of words"),
        ("ño", "pequeño", "word endings"),
        (" A", "a", "capital letters"),
    ],
)
def test_kinds_of_tokens(text: str, word: str, kind: str) -> None:
    assert token_kind(text, word) == kind


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("the cat and the dog were not there", "English"),
        ("der Hund und die Katze sind nicht da", "German"),
        ("le chat et le chien ne sont pas dans la maison", "French"),
        ("def f ( self ) : return None", "Python code"),
        ("42 17 39", ""),
    ],
)
def test_languages(text: str, language: str) -> None:
    texts = [f" {word}" for word in text.split()]
    assert set(values(texts, "language")) == {language}


TEXTS = [
    text
    for sentence in (
        " On| Monday|,| he| was| late| at| last|.| (|The| end|)|\n",
        "def| run|ning|(|self|):|\n|    |return| 12|3|\n",
        " Der| Hund| und| die| Katze| sind| nicht| hier|.| JSON| A| “|yes|”| -| a|t| one| time|.",
    )
    for text in sentence.split("|")
]


@pytest.mark.parametrize(
    ("label", "word", "expected"),
    [
        ("“Monday”", " Monday", True),
        ("“Monday”", " last", False),
        ("“last” after “at”", " last", True),
        ("After “at” or “the”", " last", True),
        ("After “at” or “the”", " late", False),
        ("Words in “-day” or “-ing”", " Monday", True),
        ("Capitalised words in “-day” or “-ing”", " Monday", True),
        ("Numbers inside brackets", " 12", False),
        ("“end” inside brackets", " end", True),
        ("An explanation of a language model", " Monday", None),
        ("“x” after “” at the start of a document", " Monday", None),
    ],
)
def test_a_label_holds_where_it_says(label: str, word: str, expected: bool | None) -> None:
    assert label_matches(label, TEXTS, TEXTS.index(word)) is expected


def test_a_label_holds_where_its_rule_does() -> None:
    extractor, draw = FeatureExtractor("<|endoftext|>"), random.Random(0)
    features = extractor.extract(TEXTS)
    everywhere, read, equal = np.arange(len(TEXTS)), 0, 0
    for _ in range(100):
        token = draw.randrange(len(TEXTS))
        chosen = draw.sample([f for f in range(len(FEATURES)) if features[f, token]], draw.choice((1, 1, 2)))
        rule = tuple(Condition(f, (int(features[f, token]),)) for f in sorted(chosen))
        label = describe_rule(rule, extractor.vocabularies)
        held = [label_matches(label, TEXTS, position) for position in everywhere.tolist()]
        if None in held:
            continue
        read += 1
        matched = matches(features, rule, everywhere)
        assert not any(matched & ~np.array(held, bool)), label  # a label may say less than its rule
        equal += bool((matched == np.array(held)).all())
    assert read > 75
    assert equal > 0.7 * read


Answer = Callable[[str], tuple[int, str]]
"""Function from the last message to a status and a content."""


@pytest.fixture(autouse=True)
def retry_immediately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """URL of an endpoint with these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, content = answer(request["messages"][-1]["content"])
            body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()


@pytest.fixture
def indexed(world: World, run: Run) -> Run:
    world.index(run, tokens=3_000, examples_per_bin=3, top_examples=20)
    return run


def usable_answer(question: str) -> tuple[int, str]:
    """Answer with a label, or with every second text."""
    if question.startswith("Description"):
        return 200, 'I say {"matching": [1, 3, 5]}.'
    return 200, '{"label": "letters\\n of words"}'


def explain(world: World, run: Run, answer: Answer, callbacks: Callbacks = NO_CALLBACKS) -> ExplainResult:
    """Ask an endpoint with these answers for labels of the three experts without one."""
    with serving(answer) as url:
        ask = Endpoint(url, "asked").ask
        return explain_experts(run, world.database, "asked", ask, limit=3, callbacks=callbacks)


def test_labels_are_stored_with_scores_and_requested_once(world: World, indexed: Run) -> None:
    explain(world, indexed, usable_answer)
    first = {label.expert for label in world.rows(AutomaticLabelRecord)}
    assert first
    explain(world, indexed, usable_answer)
    stored = world.rows(AutomaticLabelRecord)
    assert len(stored) > len(first)
    assert {label.label for label in stored} == {"letters of words"}
    assert all(label.labeller == "asked" and 0 <= label.balanced_accuracy <= 1 for label in stored)


@pytest.mark.parametrize(
    "answer",
    [
        lambda question: (200, "I would rather not."),
        lambda question: (200, '{"label": ""}'),
        lambda question: (200, '{"matching": [99]}') if question.startswith("D") else (200, '{"label": "a"}'),
        lambda question: (200, '{"matching": "all"}') if question.startswith("D") else (200, '{"label": "a"}'),
    ],
)
def test_an_unusable_answer_gives_no_label(world: World, indexed: Run, answer: Answer) -> None:
    result = explain(world, indexed, answer)
    assert result.failed > 0
    assert result.failed + result.skipped == 3
    assert world.rows(AutomaticLabelRecord) == []


@pytest.mark.parametrize("status", [401, 500])
def test_an_error_status_is_an_error(world: World, indexed: Run, status: int) -> None:
    with pytest.raises(EndpointError, match=str(status)):
        explain(world, indexed, lambda question: (status, "no"))
    assert world.rows(AutomaticLabelRecord) == []


def test_labels_survive_cancelling(world: World, indexed: Run) -> None:
    callbacks = Callbacks(is_cancelled=lambda: bool(world.rows(AutomaticLabelRecord)))
    with pytest.raises(UserError, match="saved"):
        explain(world, indexed, usable_answer, callbacks)
    assert len(world.rows(AutomaticLabelRecord)) == 1
    explain(world, indexed, usable_answer)
    assert len(world.rows(AutomaticLabelRecord)) > 1


def test_no_text_is_of_a_block_with_explained_texts(
    world: World, indexed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_marked_text", lambda _session, _run, _tokenizer, sequence, _position: sequence)
    with Session(world.database) as session:
        record = find_record(session, indexed.name)
        for expert in range(record.num_experts):
            examples = module.read_label_examples(session, record, expert, indexed.tokenizer, 14, 6)
            tested = [int(number) // BLOCK_SEQUENCES % 2 for number in (*examples.active, *examples.inactive)]
            assert all(tested) and not any(int(number) // BLOCK_SEQUENCES % 2 for number in examples.explained)
