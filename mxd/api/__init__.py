"""The Python interface: layers as PyTorch modules, training, measurements and results for scripts and notebooks."""
