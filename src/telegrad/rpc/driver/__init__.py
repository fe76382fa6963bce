"""The real world around the protocol: sockets, threads and the clock; see README.md."""
