"""The SQL database: tables, versions and full-text search."""
