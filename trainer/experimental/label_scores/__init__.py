"""Scores of expert labels by a local language model, without a key."""
