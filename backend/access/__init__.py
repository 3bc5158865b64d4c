"""Who may do what: tokens with roles, the guard at the door, limits of rate and size.

On this machine's own address nobody has to sign in. Bound anywhere else, every request to the API carries a token.
"""
