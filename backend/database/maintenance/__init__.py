"""Database maintenance: check, compact, upgrade."""
