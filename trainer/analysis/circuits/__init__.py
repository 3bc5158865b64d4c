"""Circuits: attribution graphs that trace a next token back through experts to the tokens of the prompt.

``tracing`` builds the graph of a prompt, ``ablation`` compares its predictions with the language model, and
``agreement`` summarises the comparison over many experts.
"""
