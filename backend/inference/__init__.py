"""Live routing and steering: one worker thread per language model."""
