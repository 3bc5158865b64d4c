"""One module per benchmark command."""
