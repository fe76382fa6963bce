"""What a reference count says about other users of a value, with the interpreter's lock or without.

Without the lock, threads run side by side, and a count says less. It is still reliable for a value
that only the current thread can reach: no other can come to refer to it. But another thread may
take a reference to a Tensor's array just after the count was read, so there no count is low enough.
Each module measures the counts it compares with: note COUNTS in engine/local.py.
"""

import sys

IS_LOCKED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the interpreter's lock lets one thread run at a time."""
