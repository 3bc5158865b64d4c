"""Plotly figures and the HTML report."""
