"""Features of other people from Neuronpedia, as runs without weights: their examples and labels can be browsed."""
