"""What keeps passes apart: contexts, what calls record in them, and their leases."""
