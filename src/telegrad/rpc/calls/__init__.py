"""A call from its caller to its callee and back."""
