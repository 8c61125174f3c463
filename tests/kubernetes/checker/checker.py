"""Watches a cluster while it is tested, and says what is wrong at any moment, as book.py has it.

python3 checker.py watch --kubeconfig FILE --out FOLDER [--stuck SECONDS] [--record] NODE=ROOT...
    until SIGTERM. ROOT is where the files of that node are seen, of whose manager cards and tasks
    are asked once a second. In FOLDER: `wrong`, a line for each thing that was wrong, `moments`,
    when each pod was seen, bound, running, deleted, over and gone, and at the end `sum`. With
    --record also `record`, all that was judged. The exit status is 1 where anything was wrong.
python3 checker.py judge FILE [--stuck SECONDS]
    such a record anew.
python3 checker.py create --kubeconfig FILE
    the objects on standard input, a JSON document each, many at a time.
python3 checker.py times FOLDER BEGIN
    of the pods whose names begin so: milliseconds from the first one seen to the last one bound and
    running.
python3 checker.py waits FOLDER BEGIN
    of those pods, how long each bind came after the room that it took: the last pod's end before
    it, or claim's, that no earlier bind took.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Optional, TextIO

import book
from cluster_api import Api, Document, follow

WATCHED = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
}
AT_A_TIME = 8
RECORD_AGAIN = 5.0  # seconds
PATIENCE = 5.0  # seconds for an answer of a manager
KEPT = {  # of documents, what book.py reads
    "Pod": {"metadata": ("name", "namespace", "uid", "deletionTimestamp"),
            "spec": ("nodeName", "resourceClaims", "restartPolicy"),
            "status": ("phase", "reason", "message", "resourceClaimStatuses")},
    "Node": {"metadata": ("name", "uid", "labels"), "spec": ("taints", "unschedulable")},
}


def kept(kind: str, one: Document) -> Document:
    """A document without what nobody here reads."""
    if kind not in KEPT:
        return {**one, "metadata": {k: v for k, v in one["metadata"].items()
                                    if k in ("name", "namespace", "uid")}}
    small: Document = {part: {k: v for k, v in one.get(part, {}).items() if k in keys}
                       for part, keys in KEPT[kind].items()}
    told = one["metadata"].get("annotations", {})
    small["metadata"]["annotations"] = {
        k: v for k, v in told.items() if k.startswith("qgpu.io/") or k.startswith(book.PREFIX)}
    if kind == "Node":
        conditions = one.get("status", {}).get("conditions", [])
        small["status"] = {"conditions": [{"type": c["type"], "status": c["status"]}
                                          for c in conditions if c["type"] == "Ready"]}
        return small
    small["spec"]["containers"] = [{"name": c["name"], "resources": c.get("resources", {})}
                                   for c in one["spec"]["containers"]]
    small["status"]["containerStatuses"] = [
        {"name": c["name"], "state": {k: {} for k in c.get("state", {})}}
        for c in one.get("status", {}).get("containerStatuses", [])]
    return small


def ask_manager(root: Path, command: str) -> Document:
    line = socket.socket(socket.AF_UNIX)
    with line:
        line.settimeout(PATIENCE)
        line.connect(str(root / "run/qgpu/manager.sock"))
        line.sendall(command.encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            more = line.recv(1 << 20)
            if not more:
                raise OSError("the manager hung up")
            said += more
    answer: Document = json.loads(said)
    return answer


def manager_now(node: str, root: Path) -> Document:
    record: Document = {"kind": "Manager", "node": node}
    try:
        cards, tasks = ask_manager(root, "cards"), ask_manager(root, "tasks")
        keys = ("id", "mem_bytes", "mem_bound_bytes", "share_bound_permille",
                "greedy_bound_permille")
        record["cards"] = [{k: card[k] for k in keys} for card in cards["cards"]]
        record["tasks"] = [{"name": task["name"]} for task in tasks["tasks"]]
    except (OSError, ValueError, KeyError):
        pass  # away: it says nothing
    return record


class Judged:
    """Records go through a book, and what it says into files."""

    def __init__(self, out: Path, stuck: float, record: bool) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.book = book.Book(stuck)
        self.records = 0
        self.looks = 0
        self.count = 0
        self.out = out
        self.files: dict[str, TextIO] = {
            name: (out / name).open("w") for name in ("wrong", "moments")}
        self.record: Optional[TextIO] = (out / "record").open("w") if record else None
        self.recorded: dict[str, Document] = {}  # of managers, by node

    def is_news(self, record: Document) -> bool:
        """Managers mostly say the same again, which every few seconds is enough of a record."""
        if record["kind"] != "Manager":
            return True
        last = self.recorded.get(record["node"], {"at": 0.0})
        if record["at"] - last["at"] < RECORD_AGAIN and {**record, "at": last["at"]} == last:
            return False
        self.recorded[record["node"]] = record
        return True

    def take(self, record: Document) -> None:
        self.records += 1
        self.looks += record["kind"] == "Manager"
        if self.record is not None and self.is_news(record):
            self.record.write(json.dumps(record, separators=(",", ":")) + "\n")
        for wrong in self.book.take(record):
            self.count += 1
            self.files["wrong"].write(f'{record["at"]:.3f} {wrong}\n')
        for at, what, whom, where in self.book.moments:
            self.files["moments"].write(f"{at * 1000:.0f} {what} {whom} {where}\n")
        self.book.moments.clear()
        for file in self.files.values():
            file.flush()

    def end(self) -> None:
        if self.record is not None:
            self.record.close()
        (self.out / "sum").write_text(
            json.dumps({"records": self.records, "looks": self.looks, "wrong": self.count,
                        "most": self.book.most}) + "\n")


def watch(options: argparse.Namespace) -> int:
    came: queue.Queue[Optional[Document]] = queue.Queue()
    signal.signal(signal.SIGTERM, lambda *_: came.put(None))

    def watched(kind: str, path: str) -> None:
        def told(change: str, one: Document) -> None:
            came.put({"at": round(time.time(), 3), "kind": kind, "change": change,
                      "object": kept(kind, one)})

        follow(Api(options.kubeconfig), path, told)

    def asked(node: str, root: Path) -> None:
        while True:
            record = manager_now(node, root)
            came.put({"at": round(time.time(), 3), **record})
            time.sleep(1)

    for kind, path in WATCHED.items():
        threading.Thread(target=watched, args=(kind, path), daemon=True).start()
    for one in options.nodes:
        node, root = one.split("=", 1)
        threading.Thread(target=asked, args=(node, Path(root)), daemon=True).start()
    judged = Judged(options.out, options.stuck, options.record)
    while (record := came.get()) is not None:
        judged.take(record)
    judged.end()
    return 1 if judged.count else 0


def judge(options: argparse.Namespace) -> int:
    checked = book.Book(options.stuck)
    wrong = [one for line in options.file.read_text().splitlines()
             for one in checked.take(json.loads(line))]
    print("\n".join(wrong) or "nothing is wrong")
    return 1 if wrong else 0


PLACES = {"Pod": "/api/v1/namespaces/default/pods",
          "ResourceClaimTemplate":
              "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"}


def create(options: argparse.Namespace) -> int:
    objects: list[Document] = []
    words, at, decoder = sys.stdin.read(), 0, json.JSONDecoder()
    while at < len(words.rstrip()):
        one, at = decoder.raw_decode(words, at + len(words[at:]) - len(words[at:].lstrip()))
        objects.append(one)
    lines = threading.local()

    def send(one: Document) -> None:
        if not hasattr(lines, "api"):
            lines.api = Api(options.kubeconfig)
        lines.api.create(PLACES[one["kind"]], one)

    with ThreadPoolExecutor(AT_A_TIME) as senders:
        list(senders.map(send, objects))
    return 0


def moments_of(folder: Path, begin: str) -> list[tuple[int, str, str, str]]:
    found = []
    for line in (folder / "moments").read_text().splitlines():
        at, what, whom, where = line.split(" ", 3)
        if whom.split("/")[-1].startswith(begin):
            found.append((int(at), what, whom, where))
    return found


def times(options: argparse.Namespace) -> int:
    moments = moments_of(options.folder, options.begin)
    first = min(at for at, what, _, _ in moments if what == "seen")
    told: dict[str, Any] = {}
    for stage in ("seen", "bound", "running"):
        reached = sorted(at - first for at, what, _, _ in moments if what == stage)
        if reached:
            told[stage] = {"n": len(reached), "half_ms": reached[len(reached) // 2],
                           "last_ms": reached[-1]}
    print(json.dumps(told))
    return 0


def waits(options: argparse.Namespace) -> int:
    room: list[int] = []
    took: list[int] = []
    ends = {"freed"} if options.claims else {"over", "gone"}
    done: set[str] = set()
    for at, what, whom, _ in moments_of(options.folder, options.begin):
        if what in ends and whom not in done:
            done.add(whom)
            room.append(at)
        elif what == "bound" and room:
            took.append(at - room.pop(0))
    took.sort()
    print(json.dumps({"n": len(took), "half_ms": took[len(took) // 2] if took else None,
                      "most_ms": took[-1] if took else None}))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    named = commands.add_parser("watch")
    named.set_defaults(run=watch)
    named.add_argument("--kubeconfig", type=Path, required=True)
    named.add_argument("--out", type=Path, required=True)
    named.add_argument("--stuck", type=float, default=30.0)
    named.add_argument("--record", action="store_true")
    named.add_argument("nodes", nargs="*")
    named = commands.add_parser("judge")
    named.set_defaults(run=judge)
    named.add_argument("file", type=Path)
    named.add_argument("--stuck", type=float, default=30.0)
    named = commands.add_parser("create")
    named.set_defaults(run=create)
    named.add_argument("--kubeconfig", type=Path, required=True)
    for name, run in (("times", times), ("waits", waits)):
        named = commands.add_parser(name)
        named.set_defaults(run=run)
        named.add_argument("folder", type=Path)
        named.add_argument("begin")
        named.add_argument("--claims", action="store_true")
    options = parser.parse_args()
    status: int = options.run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
