"""A run with all that is known of it in one file, which another person opens."""
