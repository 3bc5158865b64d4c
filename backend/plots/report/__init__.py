"""The HTML report: every figure and table with its sample size, and the commands that repeat the measurements."""
