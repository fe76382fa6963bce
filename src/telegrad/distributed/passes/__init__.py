"""A backward pass over workers: local passes, their coordinator, the commit at the end."""
