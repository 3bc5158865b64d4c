"""Index a run: statistics and top examples of every expert, collected in one pass over a text."""
