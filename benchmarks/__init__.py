"""Benchmarks of speed and memory for developers; not part of the wheel."""
