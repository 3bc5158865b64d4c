"""What happens to a store and its runs when processes are killed and disks fail: ``python -m tests.faults``."""
