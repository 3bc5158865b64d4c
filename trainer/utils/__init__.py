"""Helpers that know nothing of layers or language models."""
