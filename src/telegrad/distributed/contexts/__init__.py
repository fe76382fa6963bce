"""Contexts, which keep passes apart: what calls record in them, and their leases."""
