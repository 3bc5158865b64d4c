"""Benchmarks of the trainer: ratios of interleaved alternatives, medians over several rounds."""
