"""Measurements: ratios of two ways side by side in one run, medians of several rounds."""
