"""The server's database: engine, annotations, lists, saved sessions, access tokens."""
