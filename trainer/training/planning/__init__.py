"""Training plans: memory, FLOPs, time and dtypes."""
