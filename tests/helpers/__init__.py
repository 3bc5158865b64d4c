"""Helpers that tests share."""

from pathlib import Path

TEST_DEMO = Path(__file__).resolve().parents[1] / "demo"
"""A demo folder on a language model of 7M parameters, for tests that need real text, labels and sessions."""
