"""Fault injection: databases and runs when processes are killed and disks fail. Run ``python -m benchmarks.faults``."""
