"""What a worker decides, without I/O: sessions, calls, liveness, references, budget.

No socket, thread, clock or random number below this line: ids and the time come in as arguments.
"""
