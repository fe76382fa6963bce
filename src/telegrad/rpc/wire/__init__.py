"""What travels between two workers: frames, arrays, values, functions, failures. No I/O.

``codec.py`` makes a header and raw buffers of a call or a result. What carries numbers or refers to
a worker is taken out into slots (``slots.py``; ``arrays.py`` and ``kinds.py`` say how they travel);
the rest is flat, a pickle with holes (``pickler.py``) or, in strict mode, plain (``plain.py``).
``functions.py`` says how a function travels: by its name (``function_names.py``, ``script.py``) or
by value (``captures.py``, ``codes.py``). ``failures.py`` has exceptions, ``frames.py`` what goes
over the wire.
"""
