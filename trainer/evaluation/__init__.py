"""Evaluation of runs: loss increase on held-out text, health of the experts, probing and steering. See ``evaluate``."""
