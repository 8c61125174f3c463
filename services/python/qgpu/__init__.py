"""Programs on shared GPU cards, from Python.

    import qgpu

    with qgpu.task(memory="2GiB", core=30, wait=True) as task:
        task.run(["./train.sh"], check=True)
        print(task.info()["mem_peak_bytes"])

A task is for the programs that are started in it, not for the interpreter that made it; see
`become_task()` for that. The functions here ask the daemons of this machine: `Manager(socket)` and
`Scheduler(socket)` ask others. Needs Linux and nothing but Python's own library.
"""

from __future__ import annotations

import os
from typing import Any, Iterator, List, Optional, Union

from . import _task
from ._daemons import Manager, Scheduler, Wait
from ._errors import Error, NoDaemon, NoRoom, Timeout
from ._task import Task, find_library, in_task
from ._types import Card, Document, Event, Node, Size, Submitted, TaskInfo, TaskName

__version__ = "0.1.0"
__all__ = [
    "Card",
    "Document",
    "Error",
    "Event",
    "Manager",
    "NoDaemon",
    "NoRoom",
    "Node",
    "Scheduler",
    "Size",
    "Submitted",
    "Task",
    "TaskInfo",
    "TaskName",
    "Timeout",
    "Wait",
    "become_task",
    "cards",
    "events",
    "explain",
    "find_library",
    "in_task",
    "nodes",
    "status",
    "submit",
    "task",
    "tasks",
    "what_if_drain",
    "what_if_place",
]


def _here() -> Union[Manager, Scheduler]:
    """This machine's manager where one listens, and else its scheduler, as qgpuctl chooses."""
    manager, scheduler = Manager(), Scheduler()
    if os.path.exists(manager.socket) or not os.path.exists(scheduler.socket):
        return manager
    return scheduler


def task(
    *,
    memory: Size = 1,
    core: Optional[int] = None,
    name: Optional[str] = None,
    class_: Optional[str] = None,
    cards: Optional[int] = None,
    card: Optional[str] = None,
    wait: Wait = False,
) -> Task:
    """A new task on a card of this machine, for the programs that are started in it; see
    Manager.task()."""
    return Manager().task(
        memory=memory, core=core, name=name, class_=class_, cards=cards, card=card, wait=wait
    )


def become_task(
    *,
    memory: Size = 1,
    core: Optional[int] = None,
    name: Optional[str] = None,
    class_: Optional[str] = None,
    cards: Optional[int] = None,
    card: Optional[str] = None,
    wait: Wait = False,
) -> None:
    """This program as a task: `qgpu.become_task(memory="2GiB", core=30)`.

    The program begins anew, in the same process, with libqgpu.so in it; there the call returns at
    once. So it belongs first, before anything is done or imported that takes long, and other
    threads. A program that is in a task already stays in that one. Refused with Error where the
    interpreter is typed into (a notebook, `python3 -i`): it would lose what was typed.
    """
    if not in_task():
        words = _task.command_line()
        made = task(
            memory=memory, core=core, name=name, class_=class_, cards=cards, card=card, wait=wait
        )
        made.execute(words)


def status() -> Document:
    """The node, or the cluster."""
    return _here().status()


def cards() -> List[Card]:
    """Every card: memory, shares, policy."""
    return _here().cards()


def tasks() -> List[TaskInfo]:
    """Every task: where it is, what it may use and has used."""
    return _here().tasks()


def events(
    since: int = 0, *, follow: bool = False, timeout: Optional[float] = None
) -> Iterator[Event]:
    """What happened; with `follow` also what happens from now on. See Manager.events()."""
    return _here().events(since, follow=follow, timeout=timeout)


def explain(task: TaskName) -> Document:
    """Why a task is where it is, what it gets, or why it waits; a scheduler knows more of that."""
    scheduler = Scheduler()
    known = os.path.exists(scheduler.socket)
    return scheduler.explain(task) if known else Manager().explain(task)


def nodes() -> List[Node]:
    """Every node of the cluster."""
    return Scheduler().nodes()


def submit(*, wait: Wait = False, **asked: Any) -> Submitted:
    """Places a task somewhere in the cluster; see Scheduler.submit()."""
    return Scheduler().submit(wait=wait, **asked)


def what_if_place(count: int = 1, **asked: Any) -> Document:
    """Where so many tasks like this would land in the cluster; nothing is changed."""
    return Scheduler().what_if_place(count, **asked)


def what_if_drain(target: str) -> Document:
    """Where the tasks of a node, or of NODE/CARD, would go; nothing is changed."""
    return Scheduler().what_if_drain(target)
