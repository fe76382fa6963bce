"""What a call of a primitive leaves behind: modes, nodes, saved values, the fast paths."""
