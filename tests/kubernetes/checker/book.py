"""What is known of a cluster's cards, and what is wrong with it: pure, from documents in the order
in which they came. The program that gathers them is checker.py.

A record is a document with its moment: of the API server
    {"at": 1.5, "kind": "Pod", "change": "ADDED", "object": {...}}
(Pod, Node, ResourceClaim, ResourceSlice), of a manager's admin socket
    {"at": 1.5, "kind": "Manager", "node": "a", "cards": [...], "tasks": [...]}
or, where it did not answer, without cards and tasks.

Judged at each record of its kind, so at every state that the API server was in: that no card gives
more memory, core or places than it has, and none ordinary and hybrid tasks at once. Judged with
some patience, since it compares what is told by different ways: that no card is given both by pods
and by claims, that manager and API server agree on the tasks, and that nothing is stuck. A pod of
several containers is not judged as stuck.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

Document = dict[str, Any]

PREFIX = "tke.cloud.tencent.com"
DRIVER = "qgpu.io"
GIB = 1 << 30
AGREE = 10.0  # seconds in which a manager and the API server may tell different things
BOTH_WAYS = 2.0  # seconds by which one watch may be behind another
UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": GIB, "Ti": 1 << 40}


def quantity(text: str) -> int:
    """Of memory and of counts, as cards and claims have them: whole numbers."""
    for unit, size in UNITS.items():
        if text.endswith(unit):
            return int(text[: -len(unit)]) * size
    return int(text)


class Ask(NamedTuple):
    """What one container or request wants, or has, of a card."""

    kind: str  # ordinary, online, offline
    memory: int
    core: int  # percent
    cards: int = 0  # whole ones; 0: a part of one

    def hybrid(self) -> bool:
        return self.kind != "ordinary"


@dataclass
class Held:
    ask: Ask
    by: str  # pod or claim


@dataclass
class Card:
    memory: int
    places: int
    ready: bool
    hybrid: Optional[bool] = None  # None: as its tasks are


@dataclass
class Node:
    """One node: its cards as pods are given them, and as claims are."""

    document: Document = field(default_factory=dict)
    pods: dict[str, Card] = field(default_factory=dict)
    claims: dict[str, Card] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)  # of the slice, by name: card
    ready_since: Optional[float] = None
    manager: Document = field(default_factory=dict)

    def labelled(self, name: str) -> bool:
        labels = self.document.get("metadata", {}).get("labels", {})
        return bool(labels.get(name) == "enable")

    def takes_pods(self) -> bool:
        spec = self.document.get("spec", {})
        taints = [t for t in spec.get("taints", []) if t["effect"] != "PreferNoSchedule"]
        return self.ready_since is not None and not spec.get("unschedulable") and not taints


def limits_of(container: Document) -> dict[str, int]:
    limits = container.get("resources", {}).get("limits", {})
    start = PREFIX + "/qgpu-"
    return {k[len(start) :]: quantity(v) for k, v in limits.items() if k.startswith(start)}


def ask_of(pod: Document, container: Document) -> Optional[Ask]:
    limits = limits_of(container)
    if not limits:
        return None
    kind = pod["metadata"].get("annotations", {}).get(PREFIX + "/app-class", "ordinary")
    memory = limits.get("memory", 0) * GIB
    if kind == "offline":
        return Ask(kind, memory, limits.get("core-greedy", 0))
    core = limits.get("core", 0)
    return Ask(kind, memory, min(core, 100), core // 100)


def request_ask(request: Document, hybrid: bool, has: Optional[Document] = None) -> Ask:
    """Of a claim's request; `has` is what it consumes where it was given a device."""
    one = request.get("exactly", {})
    kind = one.get("deviceClassName", "").split(".")[0]
    wants = has if has is not None else one.get("capacity", {}).get("requests", {})
    if kind not in ("ordinary", "online", "offline"):
        kind = "offline" if hybrid else "ordinary"
    memory = quantity(wants["memory"]) if "memory" in wants else 0
    core = int(wants["core"]) if "core" in wants else (0 if kind == "online" else 100)
    return Ask(kind, memory, core, 0 if wants else one.get("count", 1))


def is_over(pod: Document) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def ended(pod: Document) -> set[str]:
    """Its containers that will not run again."""
    if pod["spec"].get("restartPolicy") != "Never":
        return set()
    states = pod.get("status", {}).get("containerStatuses", [])
    return {one["name"] for one in states if "terminated" in one.get("state", {})}


def name_of(thing: Document) -> str:
    return f'{thing["metadata"]["namespace"]}/{thing["metadata"]["name"]}'


def sum_wrong(card: Card, held: dict[str, Held]) -> Optional[str]:
    """What of a card is given twice."""
    asks = [one.ask for one in held.values()]
    memory = sum(card.memory if ask.cards else ask.memory for ask in asks)
    ordinary = sum(ask.core for ask in asks if not ask.hybrid())
    greedy = sum(ask.core for ask in asks if ask.kind == "offline")
    if memory > card.memory:
        return f"memory {memory / GIB:g} of {card.memory / GIB:g} GiB"
    if ordinary > 100 or greedy > 100:
        return f"core {ordinary} and greedy {greedy} of 100 percent"
    if len(asks) > card.places:
        return f"{len(asks)} tasks of at most {card.places}"
    if len({ask.hybrid() for ask in asks}) > 1:
        return "ordinary and hybrid tasks"
    return None


def has_room(card: Card, held: list[Held], ask: Ask) -> bool:
    if not card.ready or (card.hybrid is not None and card.hybrid != ask.hybrid()):
        return False
    if ask.cards:
        return not held
    more = {str(at): one for at, one in enumerate(held)}
    return sum_wrong(card, {**more, "it": Held(ask, "")}) is None


class Book:
    """Keeps the last document of each thing. take() returns what is wrong that was not before, one
    sentence each."""

    def __init__(self, stuck: float) -> None:
        self.stuck = stuck  # seconds
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Document] = {}
        self.claims: dict[str, Document] = {}
        self.held: dict[tuple[str, str], dict[str, Held]] = {}
        self.cards_of: dict[str, set[tuple[str, str]]] = {}  # of a pod or claim, by its uid
        self.since: dict[str, float] = {}  # when what is judged with patience began
        self.said: set[str] = set()
        self.moments: list[tuple[float, str, str, str]] = []  # when, what, of whom, where
        self.moved: float = 0.0  # when a pod was bound, began or went
        self.most = {"pods": 0, "bound": 0, "running": 0, "tasks": 0}

    def take(self, record: Document) -> list[str]:
        at, kind = record["at"], record["kind"]
        self.moved = self.moved or at
        if kind == "Manager":
            self.nodes.setdefault(record["node"], Node()).manager = record
            return self.judge(at)
        gone = record["change"] == "DELETED"
        wrong = {"Node": self.node, "ResourceSlice": self.slice, "Pod": self.pod,
                 "ResourceClaim": self.claim}[kind](at, record["object"], gone)
        return self.fresh(wrong)

    def fresh(self, wrong: list[str]) -> list[str]:
        said = [one for one in dict.fromkeys(wrong) if one not in self.said]
        self.said.update(said)
        return said

    def node(self, at: float, one: Document, gone: bool) -> list[str]:
        name = one["metadata"]["name"]
        if gone:
            self.nodes.pop(name, None)
            return []
        node = self.nodes.setdefault(name, Node())
        node.document = one
        told = one["metadata"].get("annotations", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True"
                    for c in one.get("status", {}).get("conditions", []))
        if ready != (node.ready_since is not None):
            self.moments.append((at, "node-ready" if ready else "node-lost", name, ""))
            node.ready_since = at if ready else None
            self.moved = at
        cards = json.loads(told.get("qgpu.io/cards", "{}"))
        cordoned = json.loads(told.get("qgpu.io/cordoned", "[]"))
        most = cards.get("max_tasks_per_card", 0)
        node.pods = {
            card["uuid"]: Card(card["mem_bytes"], most or max(1, card["nominal_gib"] // 4),
                               card["health"] == "ready" and card["uuid"] not in cordoned)
            for card in cards.get("cards", [])
        }
        return []

    def slice(self, at: float, one: Document, gone: bool) -> list[str]:
        spec = one["spec"]
        if spec["driver"] != DRIVER:
            return []
        node = self.nodes.setdefault(spec["nodeName"], Node())
        node.claims = {}
        for device in [] if gone else spec.get("devices", []):
            told, has = device["attributes"], device["capacity"]
            card = told["uuid"]["string"]
            node.devices[device["name"]] = card
            node.claims[card] = Card(
                quantity(has["memory"]["value"]), quantity(has["tasks"]["value"]),
                not device.get("taints"), told["kind"]["string"] == "hybrid")
        return []

    def hold(self, uid: str, now: dict[tuple[str, str], dict[str, Held]]) -> list[str]:
        """What this pod or claim has from now on, and which of its cards have too much of it."""
        start = uid + "/"
        for card in self.cards_of.pop(uid, set()):
            left = {k: v for k, v in self.held[card].items() if not k.startswith(start)}
            self.held[card] = left
        wrong = []
        for card, held in now.items():
            self.cards_of.setdefault(uid, set()).add(card)
            all_held = self.held.setdefault(card, {})
            all_held.update({start + name: one for name, one in held.items()})
            wrong += self.too_much(card)
        return wrong

    def too_much(self, where: tuple[str, str]) -> list[str]:
        node = self.nodes.get(where[0], Node())
        wrong = []
        for by, cards in (("pod", node.pods), ("claim", node.claims)):
            held = {k: v for k, v in self.held[where].items() if v.by == by}
            why = sum_wrong(cards[where[1]], held) if where[1] in cards else None
            if why:
                wrong.append(f"card {where[1]} of {where[0]} gives by {by}s too much: {why}")
        return wrong

    def pod(self, at: float, one: Document, gone: bool) -> list[str]:
        uid, name = one["metadata"]["uid"], name_of(one)
        asks = [(c, ask_of(one, c)) for c in one["spec"]["containers"]]
        if not any(ask for _, ask in asks) and not one["spec"].get("resourceClaims"):
            return []
        self.tell(at, one, gone)
        if gone:
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = one
        node = one["spec"].get("nodeName", "")
        now: dict[tuple[str, str], dict[str, Held]] = {}
        if node and not gone and not is_over(one):
            told = one["metadata"].get("annotations", {}).get("qgpu.io/assigned", "{}")
            assigned = json.loads(told)
            for container, ask in asks:
                if ask is None or container["name"] in ended(one):
                    continue
                if container["name"] not in assigned:
                    return self.hold(uid, {}) + [f"pod {name} is bound and has no card"]
                for card in assigned[container["name"]]:
                    now.setdefault((node, card), {})[container["name"]] = Held(ask, "pod")
        return self.hold(uid, now)

    def tell(self, at: float, pod: Document, gone: bool) -> None:
        """The moments of a pod, for whoever wants to know how long something took."""
        before = self.pods.get(pod["metadata"]["uid"])
        where = pod["spec"].get("nodeName", "")

        def stage(of: Optional[Document]) -> list[str]:
            if of is None:
                return []
            reached = ["seen"]
            if of["spec"].get("nodeName"):
                reached.append("bound")
            if of.get("status", {}).get("phase") == "Running":
                reached.append("running")
            if of["metadata"].get("deletionTimestamp"):
                reached.append("deleted")
            if is_over(of):
                reached.append("over")
            return reached

        old = stage(before)
        for what in [w for w in stage(pod) if w not in old] + (["gone"] if gone else []):
            self.moments.append((at, what, name_of(pod), where))
            self.moved = at

    def claim(self, at: float, one: Document, gone: bool) -> list[str]:
        uid = one["metadata"]["uid"]
        given = one.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        was = bool(self.cards_of.get(uid))
        if gone:
            self.claims.pop(uid, None)
        else:
            self.claims[uid] = one
        requests = {r["name"]: r for r in one["spec"]["devices"]["requests"]}
        now: dict[tuple[str, str], dict[str, Held]] = {}
        for at_result, result in enumerate([] if gone else given):
            if result["driver"] != DRIVER or result.get("adminAccess"):
                continue
            node = self.nodes.setdefault(result["pool"], Node())
            card = node.devices.get(result["device"], result["device"])
            hybrid = card in node.claims and bool(node.claims[card].hybrid)
            ask = request_ask(requests[result["request"]], hybrid, result["consumedCapacity"])
            now.setdefault((result["pool"], card), {})[str(at_result)] = Held(ask, "claim")
        if was != bool(now):
            self.moments.append((at, "given" if now else "freed", name_of(one), ""))
        return self.hold(uid, now)

    def judge(self, at: float) -> list[str]:
        """What is judged with patience, and what managers say by themselves."""
        self.count()
        late = {}  # what would be wrong if it lasted so long
        wrong = []
        for name, node in self.nodes.items():
            wrong += self.manager_sums(name, node)
            for what in self.both_ways(name):
                late[what] = BOTH_WAYS
            for what in self.disagreement(at, name, node):
                late[what] = AGREE
        for what in self.waiting(at):
            late[what] = 0.0
        self.since = {what: self.since.get(what, at) for what in late}
        wrong += [what for what, long in late.items() if at - self.since[what] >= long]
        return self.fresh(wrong)

    def count(self) -> None:
        pods = [one for one in self.pods.values() if not is_over(one)]
        now = {
            "pods": len(pods),
            "bound": sum(1 for one in pods if one["spec"].get("nodeName")),
            "running": sum(1 for one in pods if one.get("status", {}).get("phase") == "Running"),
            "tasks": sum(len(node.manager.get("tasks", [])) for node in self.nodes.values()),
        }
        self.most = {what: max(n, self.most[what]) for what, n in now.items()}

    def manager_sums(self, name: str, node: Node) -> list[str]:
        wrong = []
        for card in node.manager.get("cards", []):
            for what, most in (("mem_bound_bytes", card["mem_bytes"]),
                               ("share_bound_permille", 1000), ("greedy_bound_permille", 1000)):
                if card[what] > most:
                    wrong.append(f'the manager of {name} says {what} {card[what]} of {most}'
                                 f' of card {card["id"]}')
        return wrong

    def both_ways(self, name: str) -> list[str]:
        return [
            f"card {card[1]} of {name} is given by pods and by claims"
            for card, held in self.held.items()
            if card[0] == name and len({one.by for one in held.values()}) > 1
        ]

    def expected(self, name: str) -> tuple[set[str], set[str]]:
        """The tasks that a node's manager may have, and those that it must."""
        may, must = set(), set()
        for one in self.pods.values():
            if one["spec"].get("nodeName") != name or is_over(one):
                continue
            # One that is being deleted ends sooner on its node than the API server knows.
            leaves = one["metadata"].get("deletionTimestamp") is not None
            live = one.get("status", {}).get("phase") == "Running" and not leaves
            for container in one["spec"]["containers"]:
                if limits_of(container):
                    task = f'{name_of(one)}/{container["name"]}'
                    may.add(task)
                    if live and container["name"] not in ended(one):
                        must.add(task)
        for one in self.claims.values():
            results = one.get("status", {}).get("allocation", {}).get("devices", {})
            for result in results.get("results", []):
                if result["driver"] == DRIVER and result["pool"] == name:
                    may.add(f'{name_of(one)}/{result["request"]}')
        return may, must

    def disagreement(self, at: float, name: str, node: Node) -> list[str]:
        """Nothing where the node is away, as its manager then can't know better."""
        away = node.ready_since is None or at - node.ready_since < AGREE
        if away or "tasks" not in node.manager:
            return []
        may, must = self.expected(name)
        has = {task["name"] for task in node.manager["tasks"] if "~" not in task["name"]}
        cards = {card["id"] for card in node.manager["cards"]}
        wrong = [f"the manager of {name} has task {task} of nobody" for task in has - may]
        wrong += [f"the manager of {name} has no task {task}" for task in must - has
                  if len(task) <= 64]
        wrong += [f"{where[1]} was given of {name}, whose manager has no such card"
                  for where, held in self.held.items()
                  if where[0] == name and held and where[1] not in cards]
        return wrong

    def waiting(self, at: float) -> list[str]:
        """Nothing moved for so long, and yet something could."""
        if at - self.moved < self.stuck:
            return []
        long = f"since {self.stuck:g} s"
        wrong = []
        for one in self.pods.values():
            node = self.nodes.get(one["spec"].get("nodeName", ""), Node())
            phase = one.get("status", {}).get("phase")
            if one["metadata"].get("deletionTimestamp"):
                if node.ready_since is not None:
                    wrong.append(f"pod {name_of(one)} is being deleted {long}")
            elif phase == "Pending" and node.ready_since is not None:
                wrong.append(f"pod {name_of(one)} is bound and does not run {long}")
            elif phase == "Pending" and not one["spec"].get("nodeName"):
                where = self.room_for(one)
                if where:
                    wrong.append(f"pod {name_of(one)} waits {long}, with room at {where}")
        return wrong

    def room_for(self, pod: Document) -> str:
        """A node where this pod of one container could go; empty: none."""
        asks = [ask for c in pod["spec"]["containers"] if (ask := ask_of(pod, c))]
        by_claim = bool(pod["spec"].get("resourceClaims"))
        if by_claim:
            names = {c.get("resourceClaimName")
                     for c in pod.get("status", {}).get("resourceClaimStatuses", [])}
            asks = [request_ask(r, False) for one in self.claims.values()
                    if one["metadata"]["name"] in names
                    for r in one["spec"]["devices"]["requests"]]
        if len(asks) != 1:
            return ""
        for name, node in self.nodes.items():
            ways = node.labelled("qgpu.io/claims")
            if not node.takes_pods() or not node.labelled("qgpu-device-enable") or ways != by_claim:
                continue
            if asks[0].hybrid() and not node.labelled("mixed-qgpu-enable"):
                continue
            cards = node.claims if by_claim else node.pods
            free = [card for card, has in cards.items()
                    if has_room(has, list(self.held.get((name, card), {}).values()), asks[0])]
            if len(free) >= max(1, asks[0].cards):
                return f"{name} ({free[0]})"
        return ""
