"""The public functions over the rows, a module a family; ``telegrad`` itself gathers them."""
