"""The real world around the protocol: sockets, threads and the clock.

``host.py`` carries a worker and owns the rest. ``link.py`` is one connection and decides which
thread reads it; ``outlet.py`` is its writing half. ``reader.py`` makes frames of bytes,
``spinning.py`` looks for bytes before a thread sleeps, ``sharing.py`` puts large buffers into
shared memory, ``admission.py`` holds requests back. ``pool.py`` has the threads; ``monitor.py``
looks after what no thread looks at; ``processes.py`` asks the kernel whether a process has ended.
"""
