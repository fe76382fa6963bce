"""A backward pass over workers: local passes, their coordinator, and the commit or abort."""
