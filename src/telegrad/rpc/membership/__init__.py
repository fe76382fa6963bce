"""A process's part in a cluster: how workers meet, and when they may go."""
