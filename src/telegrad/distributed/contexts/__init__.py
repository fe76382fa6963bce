"""Contexts, which keep passes apart: the messages that calls record in them, and their leases."""
