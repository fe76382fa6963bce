"""A backward pass over workers: local passes, their coordinator, commit or abort at the end."""
