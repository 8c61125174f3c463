"""The admin socket: a line with a command out, a line of JSON back. A connection is made for each
question: threads share none, and a restarted daemon is no special case."""

from __future__ import annotations

import json
import os
import random
import socket
import stat
import time
from typing import Any, Dict, Iterator, Optional

from ._errors import Error, NoDaemon, Timeout, refusal

ANSWER_MAX = 512 << 20  # bytes; 100,000 tasks of a cluster are some 70 MB
_CHUNK = 64 * 1024
_MACHINE_RUN_DIR = "/run/qgpu"
_PAUSE_MIN = 0.1  # seconds before a lost daemon is looked for again
_PAUSE_MAX = 5.0


def default_socket(name: str) -> str:
    """Where qgpuctl looks for a daemon's socket of that name: of this user, else of the machine.

    A run dir of somebody else's is passed over: below /tmp anybody may make one.
    """
    uid = os.geteuid()
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if uid == 0:
        folder = _MACHINE_RUN_DIR
    else:
        folder = f"{runtime}/qgpu" if runtime else f"/tmp/qgpu-{uid}"
    own, shared = f"{folder}/{name}", f"{_MACHINE_RUN_DIR}/{name}"
    try:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            return shared
    except OSError:
        return shared if os.path.exists(shared) else own
    return shared if not os.path.exists(own) and os.path.exists(shared) else own


def manager_socket() -> str:
    """QGPU_SOCKET, else this machine's manager. In a task QGPU_SOCKET is the library's: then the
    manager beside it is meant."""
    chosen = os.environ.get("QGPU_SOCKET", "")
    folder, name = os.path.split(chosen)
    if name == "attach.sock":
        return os.path.join(folder, "manager.sock")
    return chosen if chosen and name != "scheduler.sock" else default_socket("manager.sock")


def scheduler_socket() -> str:
    """QGPU_SOCKET where it names a scheduler's, else this machine's scheduler."""
    chosen = os.environ.get("QGPU_SOCKET", "")
    named = os.path.basename(chosen) == "scheduler.sock"
    return chosen if named else default_socket("scheduler.sock")


class Connection:
    """One line at a time. Not for several threads."""

    def __init__(self, path: str, timeout: float) -> None:
        self.path = path
        self._received = bytearray()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            why = error.strerror or str(error)
            raise NoDaemon(f"no daemon answers at {path} ({why})", "unavailable") from None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, line: str) -> None:
        try:
            self._socket.sendall(line.encode() + b"\n")
        except OSError:
            pass  # a daemon that refuses may close before it took the line; it is still read

    def receive(self, timeout: Optional[float]) -> Dict[str, Any]:
        """The next document. `timeout`: for all of it; None waits as long as it takes."""
        end = None if timeout is None else time.monotonic() + timeout
        searched = 0
        while (newline := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise self._silent()
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(_CHUNK)
            except socket.timeout:
                raise self._silent() from None
            except OSError:
                chunk = b""
            if not chunk or searched > ANSWER_MAX:
                raise NoDaemon(f"the daemon at {self.path} closed the connection", "unavailable")
            self._received += chunk
        line = bytes(self._received[:newline])
        del self._received[: newline + 1]
        return read(line)

    def _silent(self) -> Timeout:
        return Timeout(f"the daemon at {self.path} does not answer", "unavailable")


def read(line: bytes) -> Dict[str, Any]:
    """The document of a line, or its refusal as an exception."""
    try:
        document = json.loads(line)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not isinstance(document.get("ok"), bool):
        raise Error("the daemon's answer is no JSON document of its kind", "corrupt")
    if not document["ok"]:
        raise refusal(str(document.get("error", "")), str(document.get("code", "internal")))
    return document


def word(text: object) -> str:
    """A word of a command. A blank or a line's end in it would be another command."""
    said = str(text)
    if not said or any(c.isspace() or not c.isprintable() for c in said):
        raise Error(f"{said!r} is no name: it is empty, or has blanks in it", "invalid-argument")
    return said


def ask(path: str, line: str, timeout: float) -> Dict[str, Any]:
    with Connection(path, timeout) as connection:
        connection.send(line)
        return connection.receive(timeout)


def pauses() -> Iterator[None]:
    """Sleeps longer and longer, as many others may do at the same moment."""
    pause = _PAUSE_MIN
    while True:
        time.sleep(pause * random.uniform(0.5, 1.0))
        yield
        pause = min(pause * 2, _PAUSE_MAX)
