"""Routing prompts and steering generations through trained layers."""
