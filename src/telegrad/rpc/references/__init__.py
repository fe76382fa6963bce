"""Values that stay where they are, and who refers to them."""
