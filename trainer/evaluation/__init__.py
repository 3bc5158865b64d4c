"""What a run adds to the loss of its language model, and whether its experts do anything; start at ``evaluate``."""
