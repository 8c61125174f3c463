"""The daemons as objects: a manager divides the cards of this machine, a scheduler places tasks on
the nodes of a cluster. An object holds no connection and may be used by several threads."""

from __future__ import annotations

import json
import math
import secrets
import shutil
import subprocess
import time
from typing import Any, Callable, Iterator, List, Optional, Union, cast

from . import _connection
from ._connection import Connection, word
from ._errors import Error, NoDaemon, NoRoom, Timeout
from ._task import Task
from ._types import Card, Document, Event, Node, Size, Submitted, TaskInfo, TaskName

_NEWS_LIMIT = 60.0  # seconds; without news of room it is asked for again
_MAKES_ROOM = (
    "task-ended",
    "task-lost",
    "card-uncordoned",
    "policy-changed",
    "storage-ok",
    "cluster",
)

# False: a refusal at once. True: as long as it takes. A number: at most so many seconds.
Wait = Union[bool, float]


def _spec(fields: Document) -> str:
    said = {key: value for key, value in fields.items() if value is not None}
    for key, value in said.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Error(f"{key}: {value} is no number of GiB", "invalid-argument")
    return json.dumps(said)


def _end_of(wait: Wait) -> float:
    if isinstance(wait, bool):
        return math.inf
    if not wait >= 0:
        raise Error(f"wait: {wait} is no number of seconds", "invalid-argument")
    return time.monotonic() + wait


def _may_pass(error: Error) -> bool:
    """Refusals that may be over once a task ends, or somebody changes something."""
    other = error.code == "conflict" and not error.reason.startswith("request ")
    return error.code in ("no-room", "cordoned") or other


class _Daemon:
    def __init__(self, socket: str, timeout: float) -> None:
        self.socket = socket
        self.timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.socket!r})"

    def ask(self, command: str) -> Document:
        """The answer to a command of the admin socket, as docs/reference/commands.md lists them."""
        if not command.strip() or "\n" in command or "\r" in command:
            raise Error(f"{command!r} is no command of one line", "invalid-argument")
        return _connection.ask(self.socket, command, self.timeout)

    def status(self) -> Document:
        return self.ask("status")

    def cards(self) -> List[Card]:
        return cast(List[Card], self.ask("cards")["cards"])

    def tasks(self) -> List[TaskInfo]:
        return cast(List[TaskInfo], self.ask("tasks")["tasks"])

    def find(self, task: TaskName) -> TaskInfo:
        """The task of that number or name; it must be one."""
        number = str(task)
        same = [t for t in self.tasks() if number in (str(t["id"]), t["name"])]
        exact = [t for t in same if number == str(t["id"])]
        if len(exact or same) == 1:
            return (exact or same)[0]
        if not same:
            raise Error(f"no task is called {number}", "not-found")
        numbers = ", ".join(str(t["id"]) for t in same)
        raise Error(f"several tasks are called {number}: say {numbers}", "invalid-argument")

    def events(
        self, since: int = 0, *, follow: bool = False, timeout: Optional[float] = None
    ) -> Iterator[Event]:
        """What happened after event `since`, oldest first; with `follow` also what happens from
        now on, over restarts of the daemon. `timeout`: seconds without an event after which a
        `follow` ends with Timeout; None waits for ever."""
        last = int(since)
        while True:
            page = cast(List[Event], self.ask(f"events {last}")["events"])
            new = [event for event in page if event["seq"] > last]
            for event in new:
                last = event["seq"]
                yield event
            if not new:
                break
        if follow:
            yield from self._follow(last, timeout)

    def _follow(self, last: int, timeout: Optional[float]) -> Iterator[Event]:
        pauses = _connection.pauses()
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                with Connection(self.socket, self.timeout) as watch:
                    watch.send(f"watch {last}")
                    watch.receive(self.timeout)
                    while True:
                        left = None if timeout is None else max(0.0, end - time.monotonic())
                        event = watch.receive(left).get("event")
                        if event is None:
                            continue
                        pauses = _connection.pauses()
                        last = event["seq"]
                        yield cast(Event, event)
                        end = math.inf if timeout is None else time.monotonic() + timeout
            except (NoDaemon, Timeout):
                pass
            except Error as error:  # overloaded: this reader was too slow, and goes on from `last`
                if error.code != "overloaded":
                    raise
            if time.monotonic() >= end:
                raise Timeout(f"no event within {timeout} s", "unavailable")
            next(pauses)

    def _ask_until_room(
        self,
        line: str,
        wait: Wait,
        waits: Callable[[Document], bool],
        news: Callable[[Event, Document], bool],
    ) -> Document:
        """Asks, and where the refusal may pass, or the answer says that the task `waits`, asks anew
        after each event that is `news`. `line` names its request: a daemon that went away before
        its answer came does the work once."""
        if wait is False:
            return self.ask(line)
        end = _end_of(wait)
        pauses = _connection.pauses()
        refused: Optional[Error] = None
        while True:
            answer: Document = {}
            try:
                # Begun before the question, so that no news falls between.
                with Connection(self.socket, self.timeout) as watch:
                    watch.send("watch")
                    watch.receive(self.timeout)
                    try:
                        answer = self.ask(line)
                        if not waits(answer):
                            return answer
                        refused = NoRoom(answer.get("reason") or "the task waits", "no-room")
                    except Error as error:
                        if not _may_pass(error):
                            raise
                        refused = error
                    pauses = _connection.pauses()
                    limit = min(end - time.monotonic(), _NEWS_LIMIT)
                    _await(watch, limit, lambda event: news(event, answer))
            except (NoDaemon, Timeout) as lost:
                if refused is None:
                    raise
                refused = lost
                next(pauses)
            if time.monotonic() >= end:
                raise Timeout(f"no room within {wait} s: {refused.reason}", refused.code)


def _await(watch: Connection, limit: float, wanted: Callable[[Event], bool]) -> None:
    """Until an event is told that is `wanted`, or nothing came for `limit` seconds."""
    while True:
        try:
            event = watch.receive(max(limit, 0.0)).get("event")
        except Timeout:
            return
        if event is not None and wanted(event):
            return


class Manager(_Daemon):
    """The manager of this machine, which divides its cards.

    `socket`: its admin socket; by default what QGPU_SOCKET names, then RUN_DIR/manager.sock of this
    user, then the machine's. `timeout`: seconds for an answer.
    """

    def __init__(self, socket: Optional[str] = None, *, timeout: float = 10.0) -> None:
        super().__init__(socket or _connection.manager_socket(), timeout)

    def task(
        self,
        *,
        memory: Size = 1,
        core: Optional[int] = None,
        name: Optional[str] = None,
        class_: Optional[str] = None,
        cards: Optional[int] = None,
        card: Optional[str] = None,
        wait: Wait = False,
    ) -> Task:
        """A new task of this process on a card: `with manager.task(memory="2GiB", core=30) as t:`.

        `memory`: of the card. `core`: percent of it (default 10; an online task has none).
        `class_`: "online", "offline" or "ordinary". `cards`: more than one are whole cards.
        `card`: a certain one. `wait`: for room, where there is none. The task ends with the block,
        or with this process. Raises NoRoom, NoDaemon, Timeout, or Error.
        """
        fields = {
            "name": name or "python",
            "memory": memory,
            "core_percent": core,
            "class": class_,
            "cards": cards,
            "card": card,
            "request_id": f"python-{secrets.token_hex(8)}",
        }
        answer = self._ask_until_room(
            "run " + _spec(fields),
            wait,
            waits=lambda _: False,
            news=lambda event, _: event["kind"] in _MAKES_ROOM,
        )
        return Task(self, answer)

    def end(self, task: TaskName) -> None:
        """Ends a task of one's own."""
        number = task if isinstance(task, int) else self.find(task)["id"]
        self.ask(f"end {word(number)}")

    def explain(self, task: TaskName) -> Document:
        """Why a task is where it is, and what it gets: `text` and `lines`. A manager alone does not
        explain; qgpuctl does, from what the manager tells, and must be in PATH."""
        program = shutil.which("qgpuctl")
        if program is None:
            raise Error("qgpuctl explains tasks of a node, and is not in PATH", "not-found")
        line = [program, "--socket", self.socket, "-o", "json", "explain", word(task)]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if not done.stdout:
            raise Error(done.stderr.decode(errors="replace").strip(), "unavailable")
        return _connection.read(done.stdout)


class Scheduler(_Daemon):
    """The scheduler of a cluster, on this machine. `socket` and `timeout` as for Manager; the
    default is this machine's scheduler.sock. A scheduler on another machine is asked by
    `qgpuctl --server`: that door speaks Cap'n Proto over TLS, which this package does not."""

    def __init__(self, socket: Optional[str] = None, *, timeout: float = 10.0) -> None:
        super().__init__(socket or _connection.scheduler_socket(), timeout)

    def nodes(self) -> List[Node]:
        return cast(List[Node], self.ask("nodes")["nodes"])

    def submit(self, *, wait: Wait = False, **asked: Any) -> Submitted:
        """Places a task somewhere in the cluster. It ends by `delete`. `asked`: `memory`, `core`,
        `name`, and the other fields of a SPEC (docs/reference/commands.md), such as `node`,
        `models` or `application`. `wait`: until it is bound; where that is given up, the task is
        deleted."""
        fields = _asked(asked)
        fields.setdefault("request_id", f"python-{secrets.token_hex(8)}")
        waiting: List[int] = []

        def waits(answer: Document) -> bool:
            waiting[:] = [answer["task"]] if answer["waiting"] else []
            return bool(waiting)

        try:
            return cast(
                Submitted,
                self._ask_until_room(
                    "submit " + _spec(fields),
                    wait,
                    waits,
                    news=lambda event, answer: event["task"] == answer.get("task"),
                ),
            )
        except BaseException:
            for task in waiting:
                self.delete(task)
            raise

    def delete(self, task: TaskName) -> None:
        """Ends a task of the cluster, or takes it from the queue."""
        number = task if isinstance(task, int) else self.find(task)["id"]
        self.ask(f"delete {word(number)}")

    def explain(self, task: Optional[TaskName] = None, **asked: Any) -> Document:
        """Why a task is where it is or waits, by number or name; or what would become of one like
        this: `explain(memory="300GiB")`. See `text`, `remedy` and `nodes` of the answer."""
        if task is None:
            return self.ask("explain " + _spec(_asked(asked)))
        number = task if isinstance(task, int) else self.find(task)["id"]
        return self.ask(f"explain {word(number)}")

    def what_if_place(self, count: int = 1, **asked: Any) -> Document:
        """Where `count` tasks like this would land; nothing is changed."""
        return self.ask("whatif " + _spec({"place": _asked(asked), "count": count}))

    def what_if_drain(self, target: str) -> Document:
        """Where the tasks of a node, or of NODE/CARD, would go; nothing is changed."""
        return self.ask("whatif " + _spec({"drain": target}))


def _asked(asked: Document) -> Document:
    fields = {("core_percent" if key == "core" else key.rstrip("_")): value
              for key, value in asked.items()}
    fields.setdefault("name", "python")
    return fields
