"""Circuits: from which tokens and experts a next token comes, through layers of experts in place of MLPs.

``tracing`` draws the graph of a prompt, ``effects`` holds it against the language model, ``agreement`` says over many
experts how well the two go together.
"""
