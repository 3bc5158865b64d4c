"""Experts and contexts of a run as files for other programs."""
