"""Analysis of experts: indexing, labels, ablation, circuits, weights and direct effects."""
