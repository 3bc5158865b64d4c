"""Labels asked of a language model, each tested by asking it again on text held back.

The language model sees contexts of one half of the sequences and names what they have in common. Then it sees that name
and, mixed, contexts of the other half and text where the expert is silent, and says which fit (detection scoring, as in
Paulo et al., arXiv 2410.13928). A label is stored as soon as it has been tested, so that stopped work goes on where it
was; whatever goes wrong leaves no label and no score.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from trainer.errors import UserError
from trainer.labelling.endpoint import AnswerError
from trainer.labelling.examples import Examples, examples_of
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.registration import registered
from trainer.run import Run
from trainer.store import ExpertRecord, RunRecord, utc_now, writing
from trainer.tables import AutomaticLabelRecord

Ask = Callable[[str, str], dict[str, object]]
"""Asks a language model: instruction, question -> a JSON object. Raises what ``Endpoint.ask`` raises."""

SHOWN, TESTED = 14, 6
FEWEST_TESTED = 3
FAILURES_IN_A_ROW = 5
LONGEST_LABEL = 120

EXPLAIN = (
    "You are given short texts. In each, one token is marked with «». The same unit of a neural network is active on "
    "all the marked tokens. Say in a few words what the marked tokens, in their surroundings, have in common. Be "
    'specific. Answer with JSON alone: {"label": "..."}'
)
DETECT = (
    "You are given a description and numbered texts, in each of which one token is marked with «». Say of each text "
    "whether its marked token fits the description. "
    'Answer with JSON alone, the numbers of those that fit: {"fitting": [1, 4]}'
)


class Stopped(UserError):
    """The work was stopped; what is done is kept."""


@dataclass(frozen=True)
class ExplainResult:
    """What ``mxd explain`` reports."""

    run: str
    maker: str
    explained: int
    """In this call."""
    failed: int
    """Experts that have no label because the answers were of no use."""
    left: int
    balanced_accuracy: float | None
    """Mean over those explained in this call."""
    seconds: float


def explain_experts(
    run: Run,
    store: Engine,
    maker: str,
    ask: Ask,
    *,
    experts: Sequence[int] | None = None,
    limit: int = 100,
    progress: Progress = silent,
    should_stop: ShouldStop = never,
) -> ExplainResult:
    """Ask for labels of experts that have none by ``maker`` yet: those named, or those with the largest coefficients.

    Raises:
        NotFoundError: the store does not know the run.
        EndpointError: the endpoint does not answer; what was done before is kept.
        UserError: there is nothing to explain, answers are of no use again and again, or ``should_stop`` said so.
    """
    started = time.perf_counter()
    run_id, todo = _todo(run.name, store, maker, experts, limit)
    scores: list[float] = []
    failed = in_a_row = 0
    for number, expert in enumerate(todo):
        if should_stop():
            raise Stopped(f"Stopped after {len(scores)} labels, which are kept; run the same command to go on.")
        try:
            score = _explain(run, store, run_id, maker, ask, expert)
        except AnswerError as error:
            failed, in_a_row = failed + 1, in_a_row + 1
            if in_a_row >= FAILURES_IN_A_ROW:
                raise UserError(f"{in_a_row} experts in a row have got no usable answer, the last: {error}") from error
        else:
            in_a_row = 0
            scores += [] if score is None else [score]
        progress(number + 1, len(todo), f"{len(scores):,} labels, {failed:,} failed")
    return ExplainResult(
        run=run.name,
        maker=maker,
        explained=len(scores),
        failed=failed,
        left=len(todo) - len(scores) - failed,
        balanced_accuracy=sum(scores) / len(scores) if scores else None,
        seconds=time.perf_counter() - started,
    )


def _todo(name: str, store: Engine, maker: str, experts: Sequence[int] | None, limit: int) -> tuple[int, list[int]]:
    with Session(store) as session:
        run = registered(session, name)
        table = AutomaticLabelRecord
        done = set(session.scalars(select(table.expert).where(table.run_id == run.id, table.maker == maker)))
        active = select(ExpertRecord.expert).where(ExpertRecord.run_id == run.id, ExpertRecord.active_tokens > 0)
        known = session.scalars(active.order_by(ExpertRecord.largest.desc(), ExpertRecord.expert)).all()
        if not known:
            raise UserError(f"The run {name} has no index; make one with mxd index {name} --text … --tokens ….")
        wanted = [expert for expert in (experts or known) if expert not in done]
        unknown = sorted(set(wanted) - set(known))
        if unknown:
            raise UserError(f"Expert {unknown[0]} of {name} is never active in the index; leave it out.")
        return run.id, wanted[:limit]


def _explain(run: Run, store: Engine, run_id: int, maker: str, ask: Ask, expert: int) -> float | None:
    """Label one expert; returns the balanced accuracy, None where it has too few contexts to test a label."""
    with Session(store) as session:
        record = session.get_one(RunRecord, run_id)
        examples = examples_of(session, record, expert, run.tokenizer, SHOWN, TESTED)
    if not examples.shown or min(len(examples.firing), len(examples.silent)) < FEWEST_TESTED:
        return None
    label = _label(ask, examples)
    score = detection_score(ask, label, examples, random.Random(expert))
    table = AutomaticLabelRecord
    with writing(store) as session:
        session.execute(delete(table).where(table.run_id == run_id, table.expert == expert, table.maker == maker))
        session.add(
            table(
                run_id=run_id,
                expert=expert,
                maker=maker,
                label=label,
                balanced_accuracy=score,
                precision=None,
                recall=None,
                tested=len(examples.firing),
                created_at=utc_now(),
            )
        )
    return score


def _label(ask: Ask, examples: Examples) -> str:
    texts = "\n".join(
        f"{number}. {json.dumps(text, ensure_ascii=False)}" for number, text in enumerate(examples.shown, 1)
    )
    label = ask(EXPLAIN, texts).get("label")
    if not isinstance(label, str) or not label.strip():
        raise AnswerError("The language model gave no label.")
    return " ".join(label.split())[:LONGEST_LABEL]


def detection_score(ask: Ask, label: str, examples: Examples, chance: random.Random) -> float:
    """Balanced accuracy of a label: the language model, given it alone, picks the texts on which the expert fires.

    Raises:
        AnswerError: the answer is no list of numbers of these texts.
    """
    mixed = [(text, True) for text in examples.firing] + [(text, False) for text in examples.silent]
    chance.shuffle(mixed)
    picked = ask(DETECT, f"Description: {label}\n\n{_numbered([text for text, _ in mixed])}").get("fitting")
    if not isinstance(picked, list) or not all(type(n) is int and 1 <= n <= len(mixed) for n in picked):
        raise AnswerError(f"The language model did not say which texts fit: {str(picked)[:120]}.")
    chosen = set(picked)
    right = {True: 0, False: 0}
    for number, (_, fires) in enumerate(mixed, 1):
        right[fires] += (number in chosen) == fires
    return (right[True] / len(examples.firing) + right[False] / len(examples.silent)) / 2


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {json.dumps(text, ensure_ascii=False)}" for number, text in enumerate(texts, 1))
