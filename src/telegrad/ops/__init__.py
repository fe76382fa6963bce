"""The public functions over the primitives, a module a family; ``telegrad`` itself gathers them."""
