"""A handler at a ``breakpoint()``: its prompt, and the deadlines that rest meanwhile."""
