"""Test-time privacy: fine-tune runs so that the model is uncertain on chosen passages. Start at ``protect``."""
