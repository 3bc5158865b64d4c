"""Circuits: attribution graphs that trace a next token back through experts to the tokens of the prompt."""
