"""Who may speak: the cluster's key, certificates, the handshake."""
