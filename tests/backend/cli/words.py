"""Command lines of small runs, and their output."""

import json
from typing import Any

import pytest

Capture = pytest.CaptureFixture[str]


def train_words(*more: str) -> list[str]:
    """Return a command line that trains a run of 24 steps."""
    fixed = "train lm --layer 1 --dataset text.jsonl --tokens 1536 --num-experts 40 --k 4 --context-length 16"
    return [*fixed.split(), "--batch-tokens", "64", "--buffer-tokens", "512", "--log-every", "4", *more]


def document(capsys: Capture) -> Any:
    return json.loads(capsys.readouterr().out)
