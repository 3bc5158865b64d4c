"""Several layers of one language model in place at once, fine-tuned end to end; start at ``finetune``."""
