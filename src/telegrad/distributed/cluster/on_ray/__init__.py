"""Clusters of Ray's actors."""
