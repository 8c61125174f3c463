"""What goes wrong, as exceptions. Each has the daemon's own sentence and its code."""

from __future__ import annotations


class Error(Exception):
    """The daemon, or this package, refused. `str()` is the reason, as qgpuctl prints it.

    `code` is one of invalid-argument, not-found, already-exists, denied, no-room, infeasible,
    cordoned, conflict, overloaded, unavailable, corrupt, unsupported, internal.
    """

    def __init__(self, reason: str, code: str = "internal") -> None:
        super().__init__(reason, code)
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return self.reason


class NoRoom(Error):
    """Memory, share or number of tasks of every card is used up now; `wait=True` waits."""


class NoDaemon(Error, ConnectionError):
    """Nobody listens at the socket, or the daemon went away before it answered."""


class Timeout(Error, TimeoutError):
    """The daemon did not answer in time, or there was no room in the time that was given."""


def refusal(reason: str, code: str) -> Error:
    """The exception for a daemon's `{"ok":false}`."""
    return NoRoom(reason, code) if code == "no-room" else Error(reason, code)
