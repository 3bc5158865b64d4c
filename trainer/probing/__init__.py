"""How well single experts tell labelled texts apart; start at ``probe``."""
