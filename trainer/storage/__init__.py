"""Runs on disk and in the database, and layers imported from other libraries."""
