"""Automatic labels: descriptions of the tokens on which an expert is active, scored on held-out examples."""

from mxd.trainer.analysis.labelling.rule_labels import LabelResult, label_experts

__all__ = ["LabelResult", "label_experts"]
