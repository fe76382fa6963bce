"""Who may connect: the cluster's key, certificates, the handshake."""
