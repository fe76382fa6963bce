"""References to values that stay on their workers."""
