"""A process's part in a cluster: how the workers meet, and when they may leave."""
