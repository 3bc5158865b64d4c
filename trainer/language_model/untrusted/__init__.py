"""Checks of files that come with a language model, before anything loads or runs them."""
