"""Texts with and without a concept, in two halves: one to choose an expert, one to report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from mxd.trainer.data.labelled import labelled_file, read_labelled
from mxd.trainer.errors import UserError
from mxd.trainer.experimental.concepts.config import ConceptSteeringConfig

MIN_TEXTS = 20
"""Concepts with fewer texts are left out."""


@dataclass(frozen=True)
class ConceptTexts:
    """Indices of the texts of one concept, and of as many texts without it."""

    concept: str
    positive: tuple[int, ...]
    negative: tuple[int, ...]

    def half(self, which: int) -> tuple[list[int], list[int]]:
        """Positive and negative indices of half 0, to choose, or half 1, to report."""
        return list(self.positive[which::2]), list(self.negative[which::2])


def read_concepts(config: ConceptSteeringConfig) -> tuple[list[str], list[ConceptTexts]]:
    """Read the texts, and choose those with and without each concept at random.

    Raises:
        NotFoundError: there is no such file.
        UserError: it cannot be read, or has no concept with enough texts, or too few texts without it.
    """
    labelled = list(read_labelled(labelled_file(config.texts), config.text_column, config.label_column))
    counts = Counter(each.label for each in labelled if each.label != config.negative)
    large = [label for label, count in counts.most_common() if count >= MIN_TEXTS][: config.concepts]
    if not large:
        raise UserError(f"{config.texts} has no concept with at least {MIN_TEXTS} texts. Add texts.")
    generator = np.random.default_rng(config.seed)
    labels = np.array([each.label for each in labelled])
    chosen = []
    for concept in large:
        others = labels == config.negative if config.negative is not None else labels != concept
        parts = [generator.permutation(np.flatnonzero(mask))[: config.limit] for mask in (labels == concept, others)]
        if len(parts[1]) < MIN_TEXTS:
            raise UserError(f"{config.texts} has fewer than {MIN_TEXTS} texts without '{concept}'. Add texts.")
        chosen.append(ConceptTexts(concept, *(tuple(part.tolist()) for part in parts)))
    used = sorted({index for texts in chosen for index in (*texts.positive, *texts.negative)})
    place = {index: number for number, index in enumerate(used)}
    renumbered = [
        ConceptTexts(each.concept, *(tuple(place[index] for index in part) for part in (each.positive, each.negative)))
        for each in chosen
    ]
    return [labelled[index].text for index in used], renumbered
