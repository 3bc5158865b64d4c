"""Tools for agents over the Model Context Protocol; every tool is a client of the HTTP API."""
