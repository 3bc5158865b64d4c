"""Measurements of the server."""
