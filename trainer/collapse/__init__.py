"""What can be done against experts that do nothing, all do the same, or leave the work to a few. Off by default."""
