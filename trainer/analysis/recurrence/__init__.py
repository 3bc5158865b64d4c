"""Recurrence of experts: which experts of a layer are found again in other seeds."""
