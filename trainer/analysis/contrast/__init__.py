"""Contrast of two texts: which experts tell them apart."""
