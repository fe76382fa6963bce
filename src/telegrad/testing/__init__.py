"""Tools for testing programs that use telegrad; shipped and public."""
