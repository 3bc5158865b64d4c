"""Everything that needs a GPU, as one prepared run of a few minutes that needs no network.

Each section runs in its own process with a time limit, so that a failure of one leaves the others alone. What is known
so far is always in ``gpu.json``.
"""
