"""Steering towards concepts of labelled texts, scored by a frozen classifier of text instead of a judge."""
