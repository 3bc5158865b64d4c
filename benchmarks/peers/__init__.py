"""Comparison with other packages, each in an environment of its own."""
