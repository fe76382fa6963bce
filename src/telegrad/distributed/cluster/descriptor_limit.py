"""How many files this process may have open, and how many a cluster of its children needs."""

import os

from telegrad.errors import UsageError

# Of a child that was called: its control socket, what it prints and logs (3), the connection to it
# and the socket for shared memory beside that, and two while it starts.
_OF_A_WORKER = 8
# This process's own, beside those it has open: its worker, what the user opens.
_BESIDE = 64


def make_room_for(workers: int) -> None:
    """Raise the soft limit of this process, and so of its children, where so many more need that.

    Raises UsageError where the hard limit is lower.
    """
    try:
        import resource

        opened = len(os.listdir("/dev/fd"))
    except (ImportError, OSError):
        # A system that does not tell.
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
    # By as much as they take: what the program counted on for itself stays.
    more = soft + _OF_A_WORKER * workers
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (more if hard == resource.RLIM_INFINITY else min(more, hard), hard)
    )
