"""Experts and examples of a run as files for other programs."""
