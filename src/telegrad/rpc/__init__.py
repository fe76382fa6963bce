"""Calling another worker: the wire, the protocol without I/O, transports, the worker, RRef."""
