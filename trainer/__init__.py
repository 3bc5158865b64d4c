"""Layers of experts: training, storage, analysis and inference. It knows nothing of the web."""
