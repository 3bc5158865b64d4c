"""Middleware: authentication, roles, limits of rate and size, load shedding, metrics, headers.

A server on loopback requires no token. A server on any other address requires one for every API request.
"""
