"""What a reference count tells of who else refers to a value, with the lock and without it.

Where threads run side by side, without the interpreter's lock, a count tells less. Of a value that
only the current thread can reach it is still right: nobody comes to it who was not there before.
But what a Tensor shows to all threads, one of them may take up just after the count was read: there
no count is low enough. What the counts are each module measures by itself: note COUNTS in
engine/local.py.
"""

import sys

IS_LOCKED: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
"""Whether the interpreter's lock lets one thread run at a time."""
