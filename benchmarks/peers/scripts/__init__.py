"""Scripts of the participants. Those of the peers import nothing of this project but the protocol."""
