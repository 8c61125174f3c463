"""Documents of the daemons, as they come: plain dictionaries, so `pandas.DataFrame(qgpu.tasks())`
works. A daemon may say more than is listed here. Sizes are bytes, times nanoseconds (`_ns`) or
milliseconds since 1970 (`_unix_ms`), shares thousandths of a card (`_permille`)."""

from __future__ import annotations

from typing import Any, Dict, List, TypedDict, Union

# A number of GiB, or a text with a unit: 2, 1.5, "1.5GiB", "512MiB".
Size = Union[int, float, str]
# A task by its number or its name.
TaskName = Union[int, str]
Document = Dict[str, Any]

Card = TypedDict(
    "Card",
    {
        "id": str,
        "index": int,
        "node": str,
        "model": str,
        "backend": str,
        "mem_bytes": int,
        "mem_bound_bytes": int,
        "share_bound_permille": int,
        "policy": str,
        "kind": str,
        "suspend": str,
        "state": str,
        "tasks": int,
    },
    total=False,
)


class TaskInfo(TypedDict, total=False):
    """A task as `tasks` lists it."""

    id: int
    name: str
    node: str
    card: str
    cards: int
    share_permille: int
    mem_bytes: int
    mem_used_bytes: int
    mem_peak_bytes: int
    state: str
    processes: int
    gpu_ns: int
    used_ns: int
    held_ns: int
    turns: int
    launches: int
    owner_pid: int
    owner_uid: int
    note: str
    reason: str


class Event(TypedDict, total=False):
    """`seq` grows by one with each event of a daemon, also over its restarts."""

    seq: int
    unix_ms: int
    kind: str
    task: int
    card: str
    text: str
    actor: str


class Node(TypedDict, total=False):
    """A node of a cluster."""

    name: str
    state: str
    cordoned: bool
    draining: bool
    mixed: bool
    version: str
    cards: int
    tasks: int
    mem_bytes: int
    mem_bound_bytes: int
    share_bound_permille: int


class Submitted(TypedDict, total=False):
    """What `submit` answers. `env` is for a launcher on that node."""

    task: int
    waiting: bool
    node: str
    cards: List[str]
    token: str
    env: Dict[str, str]
    reason: str
