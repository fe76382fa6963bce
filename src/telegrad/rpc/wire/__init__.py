"""What workers send each other: frames, arrays, values, functions, failures. No I/O.

``codec.py`` makes a header and raw buffers of a call or a result. Values that carry numbers or
refer to a worker are taken out into slots (``slots.py``; ``arrays.py`` and ``kinds.py`` say how
these are sent); the rest is flat, a pickle with holes (``pickler.py``) or, in strict mode, plain
(``plain.py``). ``functions.py`` says how a function is sent: by its name (``function_names.py``,
``script.py``) or by value (``captures.py``, ``codes.py``). ``failures.py`` has exceptions,
``frames.py`` the format on the wire.
"""
