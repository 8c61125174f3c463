"""A task: a share of a card and memory on it, and the programs that run in it.

The share and the quota are kept by libqgpu.so inside a program, and a program gets it at its start
alone: the loader reads LD_PRELOAD then, and a driver that was used before can't be held later. So a
task of this interpreter is for the programs that it starts. To have the interpreter itself in a
task, call `become_task()` as the first thing of a program, or start it by `qgpuctl run` or
`python3 -m qgpu run`; a notebook gets a kernel by `python3 -m qgpu kernel install`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NoReturn, Optional, Sequence

from ._connection import pauses
from ._errors import Error, NoDaemon, Timeout
from ._types import Document, TaskInfo

if TYPE_CHECKING:
    from ._daemons import Manager

_END_LIMIT = 2.0  # seconds for ending a task while the manager restarts
_VALUE_MAX = 4096

# What a manager may say of a program's environment; no value of these is a path. The library and
# its socket are found here, as qgpuctl does: whoever answers at a socket chooses no code for us.
_CARRIED = (
    "QGPU_TOKEN",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "POCL_DEVICES",
    "POCL_MAX_PTHREAD_COUNT",
    "POCL_CPU_MAX_CU_COUNT",
    "POCL_MEMORY_LIMIT",
    "POCL_MAX_WORK_GROUP_SIZE",
    "POCL_AFFINITY",
)
_PLAIN = re.compile(r"[A-Za-z0-9_., -]*")


def in_task() -> bool:
    """Whether this interpreter was started as a program of a task."""
    return bool(os.environ.get("QGPU_TOKEN"))


def find_library() -> str:
    """libqgpu.so: QGPU_LIB, else beside qgpuctl, else where packages and `make install` put it."""
    chosen = os.environ.get("QGPU_LIB", "")
    program = shutil.which("qgpuctl")
    beside = os.path.dirname(os.path.dirname(os.path.realpath(program))) if program else "/usr"
    places = [f"{folder}/lib/libqgpu.so" for folder in (beside, "/usr", "/usr/local")]
    for path in [chosen] if chosen else places:
        if os.access(path, os.R_OK):
            break
    else:
        where = chosen or ", ".join(places)
        raise Error(f"libqgpu.so is not at {where}: set QGPU_LIB to it", "not-found")
    if re.search(r"[ :]", path):
        why = "holds a blank or a colon, as LD_PRELOAD can't carry: set QGPU_LIB to one without"
        raise Error(f'"{path}" {why}', "invalid-argument")
    return path


class Task:
    """A task that `qgpu.task()` made. It ends by `end()`, with its `with` block, or with the
    process that made it. Its programs should end before: from then on their launches fail."""

    def __init__(self, manager: Manager, answer: Document) -> None:
        self.id: int = answer["task"]
        self.cards: List[str] = list(answer["cards"])
        self._manager = manager
        self._owner = os.getpid()
        self._ended = False
        told: Dict[str, str] = answer["env"]
        self._variables = {
            name: value
            for name, value in told.items()
            if name in _CARRIED and len(value) <= _VALUE_MAX and _PLAIN.fullmatch(value)
        }
        folder = os.path.dirname(os.path.abspath(manager.socket))
        self._variables["QGPU_SOCKET"] = f"{folder}/attach.sock"

    def __repr__(self) -> str:
        return f"<qgpu task {self.id} on {', '.join(self.cards)}>"

    def __enter__(self) -> Task:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def environment(self, base: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
        """The environment of a program of this task: `base`, or this interpreter's, and the task.
        For whatever starts programs: `subprocess.Popen(..., env=task.environment())`."""
        now = os.environ if base is None else base
        # How PoCL makes its devices is the manager's to say: a program must count them as it does.
        whole = {name: value for name, value in now.items() if not name.startswith("POCL_")}
        whole.update(self._variables)
        library = find_library()
        for name in ("LD_PRELOAD", "OPENCL_LAYERS"):
            others = [path for path in whole.get(name, "").split(":") if path not in ("", library)]
            whole[name] = ":".join([library, *others])
        return whole

    def run(self, args: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """`subprocess.run` with a program of this task; `options` are its own."""
        return subprocess.run(args, env=self.environment(options.pop("env", None)), **options)

    def popen(self, args: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """`subprocess.Popen` with a program of this task. Wait for it before the block ends."""
        return subprocess.Popen(args, env=self.environment(options.pop("env", None)), **options)

    def info(self) -> TaskInfo:
        """What it may use and has used by now."""
        return self._manager.find(self.id)

    def explain(self) -> Document:
        """Why it is where it is, and what it gets."""
        return self._manager.explain(self.id)

    def end(self) -> None:
        """Gives its place back. A second time, or in a fork of the process that made it, nothing.
        Where the manager is away, it sees by itself that the process is gone."""
        if self._ended or os.getpid() != self._owner:
            return
        self._ended = True
        limit = time.monotonic() + _END_LIMIT
        pause = pauses()
        while True:
            try:
                self._manager.end(self.id)
                return
            except (NoDaemon, Timeout):
                if time.monotonic() >= limit:
                    return
                next(pause)
            except Error as error:
                if error.code == "not-found":  # evicted, or its card is gone
                    return
                raise

    def execute(self, args: Sequence[str]) -> NoReturn:
        """This process becomes a program of the task: the same process, so the task goes on. Only
        an OSError returns, as of os.execvpe, with the task ended."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            os.execvpe(args[0], list(args), self.environment())
        except BaseException:
            self.end()
            raise


def command_line() -> List[str]:
    """The words that this interpreter was started with, for become_task()."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]
    main = sys.modules["__main__"]
    typed = hasattr(sys, "ps1") or sys.flags.interactive or "ipykernel" in sys.modules
    if typed or not (hasattr(main, "__file__") or "-c" in words):
        raise Error("an interpreter that is typed into can't begin again as a task: start it by "
                    "`python3 -m qgpu run`, a notebook's by `python3 -m qgpu kernel install`",
                    "unsupported")
    return [sys.executable, *words[1:]]
