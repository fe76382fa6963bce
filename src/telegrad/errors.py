"""Every public exception.

The tree::

    TelegradError
    ├── UsageError                    you misused this; the message says what to do
    │   ├── ShapeError                (also ValueError)
    │   ├── DTypeError                (also TypeError)
    │   ├── DeviceError               (also ValueError)
    │   ├── GradientError             (also RuntimeError) a derivative that can't be had so
    │   │   ├── GraphFreedError       a second pass through a graph that was freed
    │   │   ├── SavedValueChanged     a value that a rule needs was changed in place
    │   │   └── NotDifferentiable     a function, or a mode of it, without a derivative
    │   ├── AnomalyError              (also RuntimeError) found by detect_anomaly
    │   ├── LevelError                (also RuntimeError) dual levels entered or left out of order
    │   ├── ContextError              (also RuntimeError) an unknown, released or nested context
    │   ├── NotInitialized            (also RuntimeError) a call before init_rpc or after shutdown
    │   ├── UnknownWorker             (also LookupError) the known names are in the message
    │   ├── Unserializable            (also TypeError) which value can't be sent, by path
    │   └── Refused                   (also PermissionError) the other side serves no such call
    ├── PeerError                     the other side failed or broke the protocol
    │   ├── WorkerLost                (also ConnectionError) its name, since when
    │   │   └── Unreachable           neither it nor the worker that calls it listens
    │   ├── CallTimeout               (also TimeoutError) no answer before the deadline
    │   ├── AuthenticationFailed      (also ConnectionError) the key was not proved
    │   ├── ProtocolViolation         (also ConnectionError) a frame that no peer of ours sends
    │   └── PassAborted               (also RuntimeError) a distributed pass that failed elsewhere
    └── InternalError                 (also RuntimeError) a bug in telegrad: please report it
"""

__all__ = [
    "AnomalyError",
    "AuthenticationFailed",
    "CallTimeout",
    "ContextError",
    "DTypeError",
    "DeviceError",
    "GradientError",
    "GraphFreedError",
    "InternalError",
    "LevelError",
    "NotDifferentiable",
    "NotInitialized",
    "PassAborted",
    "PeerError",
    "ProtocolViolation",
    "Refused",
    "SavedValueChanged",
    "ShapeError",
    "TelegradError",
    "UnknownWorker",
    "Unreachable",
    "Unserializable",
    "UsageError",
    "WorkerLost",
]


class TelegradError(Exception):
    """The root of all errors that telegrad raises on purpose."""


class UsageError(TelegradError):
    """A call that can't be served as it was made."""


class ShapeError(UsageError, ValueError):
    """Shapes that don't fit together."""


class DTypeError(UsageError, TypeError):
    """A dtype that the function does not take."""


class DeviceError(UsageError, ValueError):
    """Values on devices that don't fit together, or a device that isn't there."""


class GradientError(UsageError, RuntimeError):
    """A derivative that can't be computed as asked."""


class GraphFreedError(GradientError):
    """A second pass through a graph whose saved values were freed by the first."""


class SavedValueChanged(GradientError):
    """A value saved for the backward pass was changed in place before it ran."""


class NotDifferentiable(GradientError):
    """A function, or one mode of it, that has no derivative."""


class AnomalyError(UsageError, RuntimeError):
    """A NaN or a failing rule found under detect_anomaly, with the line that recorded it."""


class LevelError(UsageError, RuntimeError):
    """Dual levels that were entered, left or named out of order."""


class ContextError(UsageError, RuntimeError):
    """A distributed context that is unknown, released, nested or of another pass."""


class NotInitialized(UsageError, RuntimeError):
    """A remote call outside the life of this process's worker."""


class UnknownWorker(UsageError, LookupError):
    """A worker that is not part of the cluster."""


class Unserializable(UsageError, TypeError):
    """A value that can't be sent to another worker."""


class Refused(UsageError, PermissionError):
    """A call that the other worker does not serve, or a bind that would be unsafe."""


class PeerError(TelegradError):
    """The other side failed or broke the protocol."""


class WorkerLost(PeerError, ConnectionError):
    """A worker died, stopped or can't be reached."""


class Unreachable(WorkerLost):
    """A worker that can't be dialled and won't dial: neither it nor its caller listens."""


class CallTimeout(PeerError, TimeoutError):
    """No answer came before the deadline."""


class AuthenticationFailed(PeerError, ConnectionError):
    """The other side did not prove that it knows the cluster's key."""


class ProtocolViolation(PeerError, ConnectionError):
    """A frame that no telegrad worker sends."""


class PassAborted(PeerError, RuntimeError):
    """A distributed pass that failed on another worker."""


class InternalError(TelegradError, RuntimeError):
    """An invariant of telegrad itself was broken."""
