"""Labels from a language model, each tested on held-out examples.

The language model describes the common property of examples from one half of the sequences. It then receives only that
description and a mix of held-out texts, active and inactive ones, and says which of them match (detection scoring,
Paulo et al., arXiv 2410.13928). A tested label is stored immediately, so an interrupted command can be continued. A
failed expert gets neither label nor score.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.llm_client import AnswerError
from mxd.trainer.analysis.labelling.llm_examples import LabelExamples, read_label_examples
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, ExpertRecord, RunRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

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
    """Summary that ``mxd explain`` reports. Experts labelled earlier are not counted."""

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
        CancelledError: the task was cancelled.
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
            raise UserError(f"{name} is not indexed. Run: mxd index {name}")
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
    label = _ask_for_label(ask, examples)
    score = detection_score(ask, label, examples, random.Random(expert))
    table = AutomaticLabelRecord
    with writing(database) as session:
        session.execute(delete(table).where(table.run_id == run_id, table.expert == expert, table.labeller == labeller))
        session.add(
            table(
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


def _ask_for_label(ask: ChatFunction, examples: LabelExamples) -> str:
    label = ask(EXPLAIN, _numbered(examples.explained)).get("label")
    if not isinstance(label, str) or not label.strip():
        raise AnswerError("The answer contains no label.")
    return " ".join(label.split())[:MAX_LABEL_LENGTH]


def detection_score(ask: ChatFunction, label: str, examples: LabelExamples, generator: random.Random) -> float:
    """Balanced accuracy with which the language model, given only the label, picks the texts with an active token.

    Raises:
        AnswerError: the answer is not a list of text numbers.
    """
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
