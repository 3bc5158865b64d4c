"""Bundles: a run with everything known about it in one file."""
