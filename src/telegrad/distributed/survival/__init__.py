"""Training that survives the loss of workers: residents, snapshots, and a loop over steps."""
