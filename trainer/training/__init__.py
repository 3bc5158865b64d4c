"""Training sparse layers on activations, and fine-tuning several of them together."""
