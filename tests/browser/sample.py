"""Experts of the shipped sample's first run, found by their labels: another sample has them at other numbers."""

import json

from tests.helpers import TEST_DEMO

RUN = "demo-l3-k16"
_LABELS: dict[str, str] = json.loads((TEST_DEMO / "labels.json").read_text("utf-8"))[RUN]


def labelled(label: str) -> int:
    return next(int(expert) for expert, its in _LABELS.items() if its == label)


ANSWERING = labelled("“System:” answering a question")
"""Fires often, and changes a text visibly."""
CLOSING_TAG = labelled("Closing HTML tag")
DECIMAL_POINT = labelled("Decimal point")
BRACKET = labelled("Opening bracket of a declaration")
"""Never fires in a story."""
UNLABELLED, *_ = (expert for expert in range(3999, 4096) if str(expert) not in _LABELS)
"""Has no label of a person's."""
