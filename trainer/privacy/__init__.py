"""Test-time privacy: on some passages a run makes its language model unsure of the next token; start at ``protect``."""
