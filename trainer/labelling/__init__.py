"""Automatic labels: what tells the tokens an expert fires on from all others, in words, with a score."""

from trainer.labelling.label import LabelResult, label_experts

__all__ = ["LabelResult", "label_experts"]
