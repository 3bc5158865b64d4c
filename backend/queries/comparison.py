"""Experts of one run matched with those of another.

Shapes: Q experts that look for their nearest.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend import notes
from backend.importing import ALONE
from backend.library import Library
from backend.queries.automatic import shown_labels
from backend.queries.columns import among
from backend.queries.held import HeldPerPair
from backend.queries.matched import MatchedExperts
from backend.schemas import ComparedExpert, MatchedPair, RunComparison
from backend.vocabulary import Vocabulary
from trainer.store import ExpertRecord, RunRecord

TOKENS_SHOWN = 5


def kept_matches(library: Library) -> HeldPerPair[MatchedExperts]:
    """Of one application: made when first asked for, and again after a new index or new weights of either run."""

    def build(session: Session, run_id: int, other_id: int) -> MatchedExperts:
        with ALONE:
            from backend.queries.matching import match_experts

        return match_experts(session, session.get_one(RunRecord, run_id), session.get_one(RunRecord, other_id), library)

    def stamp(session: Session, run_id: int) -> int:
        return library.stamp(session.get_one(RunRecord, run_id).name)

    return HeldPerPair(build, stamp)


def run_comparison(
    session: Session, run: RunRecord, other: RunRecord, found: MatchedExperts, vocabularies: Sequence[Vocabulary]
) -> RunComparison:
    """The matched experts with what is known of them.

    Args:
        session: of the store.
        run: the first run.
        other: the one it is compared with.
        found: their matches.
        vocabularies: of the first and of the other run.
    """
    ones = _described(session, run, found.one_Q, vocabularies[0])
    others = _described(session, other, found.other_Q, vocabularies[1])
    return RunComparison(
        run=run.name,
        other=other.name,
        by=found.by,
        active=found.active,
        other_active=found.other_active,
        mutual_share=sum(found.mutual_Q) / len(found.mutual_Q),
        median_cosine=found.median_cosine,
        chance_cosine=found.chance_cosine,
        pairs=tuple(
            MatchedPair(one=ones[one], other=others[two], cosine=cosine, mutual=mutual)
            for one, two, cosine, mutual in zip(
                found.one_Q, found.other_Q, found.cosines_Q, found.mutual_Q, strict=True
            )
        ),
    )


def _described(
    session: Session, run: RunRecord, experts: Sequence[int], vocabulary: Vocabulary
) -> dict[int, ComparedExpert]:
    labels, automatic = notes.labels_of(session, run.name, experts), shown_labels(session, run, experts)
    # Not whole records: there are thousands, and most of each would be read for nothing.
    columns = select(ExpertRecord.expert, ExpertRecord.usage, ExpertRecord.top_tokens)
    wanted = columns.where(ExpertRecord.run_id == run.id, among(session, ExpertRecord.expert, set(experts)))
    return {
        expert: ComparedExpert(
            expert=expert,
            label=labels.get(expert),
            automatic=automatic.get(expert),
            usage=usage,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens[:TOKENS_SHOWN]),
        )
        for expert, usage, top_tokens in session.execute(wanted)
    }
