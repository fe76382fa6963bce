"""Clusters that this process starts."""
