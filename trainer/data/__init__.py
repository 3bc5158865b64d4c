"""From text files to token sequences to MLP activations."""
