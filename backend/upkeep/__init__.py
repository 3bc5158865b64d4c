"""Looking after a store: is all in it whole, and does it take no more room than it needs."""
