"""The limit of open files, and how many a cluster of child processes needs."""

import os

from telegrad.errors import UsageError

# For a child that was called: its control socket, three for what it prints and logs, the connection
# to it and the socket for shared memory beside that, and two while it starts.
_OF_A_WORKER = 8
# For this process, besides those that are open: its worker, and what the user opens.
_BESIDE = 64


def make_room_for(workers: int) -> None:
    """Raise the soft limit of this process, and so of its children, if `workers` more need that.

    Raise UsageError if the hard limit is too low.
    """
    try:
        import resource

        opened = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):
        # This system does not say.
        return
    wanted = opened + _BESIDE + _OF_A_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise UsageError(
            f"expected that this process may open {wanted} files, for {workers} workers, but "
            f"its limit is {hard}: raise it (`ulimit -Hn`, or LimitNOFILE= of a service), or start "
            "fewer workers"
        )
    # Raised by as much as the workers take, so that the program has as many left as before.
    more = soft + _OF_A_WORKER * workers
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (more if hard == resource.RLIM_INFINITY else min(more, hard), hard)
    )
