"""The public functions over the primitives, one module per family; ``telegrad`` exports them."""
