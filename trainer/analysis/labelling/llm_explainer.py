"""Labels by a language model, each tested on held-out examples: its client, its prompts, and the scores of its labels.

The language model describes the common property of examples from one half of the sequences. It then receives only that
description and a mix of held-out texts, active and inactive ones, and says which of them match (detection scoring,
Paulo et al., arXiv 2410.13928). A tested label is stored immediately, so an interrupted command can be continued. A
failed expert gets neither label nor score.
"""

from __future__ import annotations

import json
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.features import BLOCK_SEQUENCES
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.storage.database.column_types import TOKEN_IDS, unpack_routed
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import (
    AutomaticLabelRecord,
    ExampleRecord,
    RoutedRecord,
    RunRecord,
    SequenceRecord,
    utc_now,
)
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


ATTEMPTS = 3
RETRY_SECONDS = 1.0
MAX_ANSWER_BYTES = 1 << 20


class EndpointError(UserError):
    """The endpoint cannot be reached or returned an error."""


class AnswerError(UserError):
    """The language model's answer does not have the requested form."""


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint and one of its language models."""

    url: str
    """Base URL, such as http://127.0.0.1:11434/v1."""
    language_model: str
    """Name of the language model at the endpoint."""
    key: str | None = None
    """API key; None sends no authorisation header."""
    timeout_seconds: float = 120.0
    """Timeout per attempt."""

    def ask(self, instruction: str, question: str) -> dict[str, Any]:
        """Ask a question and return the answer's JSON object. Connection and server errors are retried.

        Raises:
            EndpointError: the endpoint cannot be reached or returned an error.
            AnswerError: the answer contains no JSON object.
        """
        body = {
            "model": self.language_model,
            "messages": [{"role": "system", "content": instruction}, {"role": "user", "content": question}],
            "temperature": 0,
        }
        answer = self._post(json.dumps(body).encode())
        try:
            content = json.loads(answer)["choices"][0]["message"]["content"]
        except (ValueError, RecursionError, KeyError, IndexError, TypeError) as error:
            raise EndpointError(
                f"{self.url} is not an OpenAI-compatible endpoint. Give the part of its URL before /chat/completions."
            ) from error
        return json_object(str(content))

    def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        url = f"{self.url.rstrip('/')}/chat/completions"
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_SECONDS * 2 ** (attempt - 1))
            try:
                request = urllib.request.Request(url, body, headers)
                with urllib.request.urlopen(request, timeout=self.timeout_seconds) as response:
                    content: bytes = response.read(MAX_ANSWER_BYTES)
                    return content
            except urllib.error.HTTPError as error:
                problem = f"{error.code} {error.reason}"
                error.close()
                # Other client errors would repeat.
                if error.code < 500 and error.code != 429:
                    break
            except (OSError, ValueError) as error:
                problem = str(getattr(error, "reason", error))
        raise EndpointError(f"No answer from {url}: {problem}. Check that the endpoint is running, then try again.")


def json_object(text: str) -> dict[str, Any]:
    """Parse the first JSON object in a text. Raises AnswerError if the text contains no JSON object."""
    start = text.find("{")
    try:
        parsed, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise AnswerError(f"The answer contains no JSON object: {text[:120]!r}.")
    return parsed


TOKENS_BEFORE, TOKENS_AFTER = 24, 6


@dataclass(frozen=True)
class LabelExamples:
    """Texts of one expert, each with one token marked by «»."""

    explained: tuple[str, ...]
    """Texts to explain. The marked token is active."""
    active: tuple[str, ...]
    """Held-out texts to test the explanation on. The marked token is active."""
    inactive: tuple[str, ...]
    """Held-out texts without any active token."""


def read_label_examples(
    session: Session, run: RunRecord, expert: int, tokenizer: PreTrainedTokenizerBase, explained: int, tested: int
) -> LabelExamples:
    """Read texts of one expert, at most ``explained`` to explain and ``tested`` held-out ones of each kind. The two
    never come from the same block of sequences. The same arguments give the same texts."""
    table = ExampleRecord
    query = select(table.sequence, table.position).where(table.run_id == run.id, table.expert == expert)
    ordered = session.execute(query.order_by(table.bin, table.rank))
    positions = list(dict.fromkeys((row.sequence, row.position) for row in ordered))
    held_out = [position for position in positions if position[0] // BLOCK_SEQUENCES % 2 == 1]
    generator = random.Random(expert)
    active = generator.sample(held_out, min(tested, len(held_out)))
    # Random tokens of the held-out sample, one per sequence, without the expert being active nearby.
    sequences = session.scalars(select(RoutedRecord.sequence).where(RoutedRecord.run_id == run.id))
    numbers = [number for number in sequences if number // BLOCK_SEQUENCES % 2 == 1]
    generator.shuffle(numbers)
    inactive: list[tuple[int, int]] = []
    for number in numbers:
        if len(inactive) == len(active):
            break
        record = session.get_one(RoutedRecord, (run.id, number))
        counts, experts = unpack_routed(record.counts, record.experts, run.num_experts)
        active_at = set(np.repeat(np.arange(len(counts)), counts)[experts == expert].tolist())
        position = generator.randrange(1, len(counts))
        if not active_at.intersection(range(position - TOKENS_BEFORE, position + TOKENS_AFTER + 1)):
            inactive.append((number, position))
    to_explain = [position for position in positions if position[0] // BLOCK_SEQUENCES % 2 == 0][:explained]
    chosen, marked = (to_explain, active, inactive), partial(_marked_text, session, run, tokenizer)
    return LabelExamples(*(tuple(marked(*position) for position in positions) for positions in chosen))


def _marked_text(
    session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, sequence: int, position: int
) -> str:
    ids = np.frombuffer(session.get_one(SequenceRecord, (run.id, sequence)).token_ids, TOKEN_IDS)
    first = max(0, position - TOKENS_BEFORE)
    texts = token_texts(tokenizer, ids[first : position + TOKENS_AFTER + 1].tolist())
    texts[position - first] = f"«{texts[position - first]}»"
    return "".join(texts)


ChatFunction = Callable[[str, str], dict[str, object]]
"""Function from an instruction and a question to a JSON object, such as ``Endpoint.ask``."""

EXPLAINED_EXAMPLES, TEST_EXAMPLES = 14, 6
MIN_TEST_EXAMPLES = 3
MAX_CONSECUTIVE_FAILURES = 5
MAX_LABEL_LENGTH = 120

EXPLAIN = (
    "You are given short texts. In each, one token is marked with «». The same unit of a neural network is active on "
    "all marked tokens. Describe in a few words what the marked tokens have in common in their context. Be specific. "
    'Answer only with JSON: {"label": "..."}'
)
DETECT = (
    "You are given a description and numbered texts. In each text, one token is marked with «». Decide for each text "
    "whether its marked token matches the description. "
    'Answer only with JSON, the numbers of the matching texts: {"matching": [1, 4]}'
)


@dataclass(frozen=True)
class ExplainResult:
    """Summary that ``mxd label --endpoint`` reports. Experts labelled earlier are not counted."""

    run: str
    labeller: str
    """Name of the language model at the endpoint."""
    labelled: int
    """Experts that got a label."""
    failed: int
    """Experts without a label because the answers could not be used."""
    skipped: int
    """Experts with too few examples to test a label."""
    balanced_accuracy: float | None
    """Mean over the new labels; None if there are none."""
    seconds: float


def explain_experts(
    run: Run,
    database: Engine,
    labeller: str,
    ask: ChatFunction,
    *,
    experts: Sequence[int] | None = None,
    limit: int = 100,
    callbacks: Callbacks = NO_CALLBACKS,
) -> ExplainResult:
    """Ask a language model for labels of experts that have none by ``labeller`` yet.

    Labels are stored one by one, so they survive an error or a cancellation.

    Args:
        labeller: name under which the labels are stored.
        experts: experts to label; by default those with the largest activations.
        limit: maximum number of experts.

    Raises:
        NotFoundError: the run is not in the database.
        EndpointError: the endpoint does not answer.
        UserError: the run is not indexed, an expert is dead, or several answers in a row could not be used.
    """
    started = time.perf_counter()
    run_id, queue = _experts_to_label(run.name, database, labeller, experts, limit)
    scores: list[float] = []
    failed = consecutive_failures = 0
    for number, expert in enumerate(queue):
        callbacks.check_cancelled(
            f"Cancelled after {len(scores)} labels, which are saved. Run the same command to continue."
        )
        try:
            score = _label_expert(run, database, run_id, labeller, ask, expert)
        except AnswerError as error:
            failed, consecutive_failures = failed + 1, consecutive_failures + 1
            if consecutive_failures >= MAX_CONSECUTIVE_FAILURES:
                raise UserError(
                    f"No usable answer for {consecutive_failures} experts in a row. The last error: {error}"
                ) from error
        else:
            consecutive_failures = 0
            scores += [] if score is None else [score]
        callbacks.on_progress(number + 1, len(queue), f"{len(scores):,} labels, {failed:,} failed")
    return ExplainResult(
        run=run.name,
        labeller=labeller,
        labelled=len(scores),
        failed=failed,
        skipped=len(queue) - len(scores) - failed,
        balanced_accuracy=sum(scores) / len(scores) if scores else None,
        seconds=time.perf_counter() - started,
    )


def _experts_to_label(
    name: str, database: Engine, labeller: str, experts: Sequence[int] | None, limit: int
) -> tuple[int, list[int]]:
    with Session(database) as session:
        run = find_record(session, name)
        table = AutomaticLabelRecord
        labelled = set(session.scalars(select(table.expert).where(table.run_id == run.id, table.labeller == labeller)))
        query = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
        active_experts = session.scalars(query.order_by(ExpertRecord.max_activation.desc(), ExpertRecord.expert)).all()
        if not active_experts:
            raise UserError(f"{name} is not indexed. Run 'mxd index {name}'.")
        queue = [expert for expert in (experts or active_experts) if expert not in labelled]
        inactive = sorted(set(queue) - set(active_experts))
        if inactive:
            raise UserError(f"Expert {inactive[0]} of {name} is inactive or dead in the index.")
        return run.id, queue[:limit]


def _label_expert(
    run: Run, database: Engine, run_id: int, labeller: str, ask: ChatFunction, expert: int
) -> float | None:
    """Label one expert. Returns the balanced accuracy, or None if it has too few examples to test a label."""
    with Session(database) as session:
        record = session.get_one(RunRecord, run_id)
        examples = read_label_examples(session, record, expert, run.tokenizer, EXPLAINED_EXAMPLES, TEST_EXAMPLES)
    if not examples.explained or min(len(examples.active), len(examples.inactive)) < MIN_TEST_EXAMPLES:
        return None
    label = ask(EXPLAIN, _numbered(examples.explained)).get("label")
    if not isinstance(label, str) or not label.strip():
        raise AnswerError("The answer contains no label.")
    label = " ".join(label.split())[:MAX_LABEL_LENGTH]
    score = detection_score(ask, label, examples, random.Random(expert))
    with writing(database) as session:
        session.merge(
            AutomaticLabelRecord(
                run_id=run_id,
                expert=expert,
                labeller=labeller,
                label=label,
                balanced_accuracy=score,
                precision=None,
                recall=None,
                test_examples=len(examples.active),
                created_at=utc_now(),
            )
        )
    return score


def detection_score(ask: ChatFunction, label: str, examples: LabelExamples, generator: random.Random) -> float:
    """Balanced accuracy with which the language model, given only the label, picks the texts with an active token.
    Raises AnswerError if the answer is not a list of text numbers."""
    mixed = [(text, True) for text in examples.active] + [(text, False) for text in examples.inactive]
    generator.shuffle(mixed)
    picked = ask(DETECT, f"Description: {label}\n\n{_numbered([text for text, _ in mixed])}").get("matching")
    if not isinstance(picked, list) or not all(type(n) is int and 1 <= n <= len(mixed) for n in picked):
        raise AnswerError(f"The answer does not list the matching texts: {str(picked)[:120]}.")
    chosen = set(picked)
    correct = {True: 0, False: 0}
    for number, (_, is_active) in enumerate(mixed, 1):
        correct[is_active] += (number in chosen) == is_active
    return (correct[True] / len(examples.active) + correct[False] / len(examples.inactive)) / 2


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {json.dumps(text, ensure_ascii=False)}" for number, text in enumerate(texts, 1))
