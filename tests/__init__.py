"""Tests of the Python code, and a setting of every process in which they run."""

import gc

gc.set_threshold(50_000)  # the default looks for cycles every 700 objects, which takes a fifth of the tests' time
