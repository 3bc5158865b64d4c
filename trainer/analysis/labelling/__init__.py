"""Automatic labels: descriptions of the tokens on which an expert is active, scored on held-out examples."""
