"""Single-expert probes on labelled texts."""
