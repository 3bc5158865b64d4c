"""Layers beyond the paper's MxD and the transcoder baselines."""
