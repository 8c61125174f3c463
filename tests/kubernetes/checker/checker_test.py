"""The rules of book.py: silent over what a real cluster of three nodes told while pods and claims
came and went, and each planted fault is named.

python3 checker_test.py RECORD: what `checker.py watch --record` wrote.
"""

from __future__ import annotations

import copy
import json
import sys
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import book

Document = dict[str, Any]

RECORD = [json.loads(line) for line in Path(sys.argv.pop(1)).read_text().splitlines()]
STUCK = 30.0


def judged(records: list[Document]) -> list[str]:
    checked = book.Book(STUCK)
    return [wrong for record in records for wrong in checked.take(record)]


def changed(change: Callable[[Document], Optional[bool]]) -> list[Document]:
    """The record with each document as `change` leaves it, without those for which it is False."""
    records = copy.deepcopy(RECORD)
    return [record for record in records if change(record) is not False]


def is_bound(record: Document) -> bool:
    return (record["kind"] == "Pod" and record["change"] != "DELETED"
            and "nodeName" in record["object"]["spec"]
            and "qgpu.io/assigned" in record["object"]["metadata"].get("annotations", {}))


def is_given(record: Document) -> bool:
    return (record["kind"] == "ResourceClaim" and record["change"] != "DELETED"
            and bool(record["object"].get("status", {}).get("allocation")))


class Rules(unittest.TestCase):
    def test_nothing_is_wrong_in_what_a_cluster_did(self) -> None:
        self.assertEqual(judged(RECORD), [])
        kinds = {record["kind"] for record in RECORD}
        self.assertEqual(kinds, {"Pod", "Node", "ResourceClaim", "ResourceSlice", "Manager"})
        self.assertTrue(any(map(is_bound, RECORD)) and any(map(is_given, RECORD)))

    def assert_found(self, records: list[Document], words: str) -> None:
        found = judged(records)
        self.assertTrue(any(words in wrong for wrong in found), found)

    def test_pods_that_have_more_core_than_a_card(self) -> None:
        def change(record: Document) -> None:
            if is_bound(record):
                limits = record["object"]["spec"]["containers"][0]["resources"]["limits"]
                limits[book.PREFIX + "/qgpu-core"] = "60"

        self.assert_found(changed(change), "percent")

    def test_pods_that_have_more_memory_than_a_card(self) -> None:
        def change(record: Document) -> None:
            if is_bound(record):
                limits = record["object"]["spec"]["containers"][0]["resources"]["limits"]
                limits[book.PREFIX + "/qgpu-memory"] = "40"

        self.assert_found(changed(change), "too much: memory")

    def test_a_whole_card_beside_another_pod(self) -> None:
        whole = next(record["object"]["metadata"]["name"] for record in RECORD if is_bound(record))

        def change(record: Document) -> None:
            if is_bound(record) and record["object"]["metadata"]["name"] == whole:
                limits = record["object"]["spec"]["containers"][0]["resources"]["limits"]
                limits[book.PREFIX + "/qgpu-core"] = "100"

        self.assert_found(changed(change), "too much")

    def test_online_and_ordinary_pods_on_a_card(self) -> None:
        odd = next(record["object"]["metadata"]["name"] for record in RECORD if is_bound(record))

        def change(record: Document) -> None:
            if is_bound(record) and record["object"]["metadata"]["name"] == odd:
                told = record["object"]["metadata"]["annotations"]
                told[book.PREFIX + "/app-class"] = "online"

        self.assert_found(changed(change), "ordinary and hybrid tasks")

    def test_a_pod_that_is_bound_without_a_card(self) -> None:
        def change(record: Document) -> None:
            if is_bound(record):
                record["object"]["metadata"]["annotations"]["qgpu.io/assigned"] = "{}"

        self.assert_found(changed(change), "is bound and has no card")

    def test_a_card_that_the_manager_does_not_have(self) -> None:
        def change(record: Document) -> None:
            if record["kind"] == "Manager" and "cards" in record:
                record["cards"] = record["cards"][:0]

        self.assert_found(changed(change), "whose manager has no such card")

    def test_claims_that_have_more_than_a_card(self) -> None:
        for name, much, words in (("memory", "40Gi", "too much: memory"),
                                  ("core", "60", "percent")):
            def change(record: Document, name: str = name, much: str = much) -> None:
                if is_given(record):
                    given = record["object"]["status"]["allocation"]["devices"]["results"][0]
                    given["consumedCapacity"][name] = much

            self.assert_found(changed(change), words)

    def test_more_claims_than_places(self) -> None:
        def change(record: Document) -> None:
            if record["kind"] == "ResourceSlice":
                for device in record["object"]["spec"]["devices"]:
                    device["capacity"]["tasks"]["value"] = "1"

        self.assert_found(changed(change), "tasks of at most 1")

    def test_a_card_given_both_ways(self) -> None:
        given = next(record["object"] for record in RECORD if is_given(record))
        where = given["status"]["allocation"]["devices"]["results"][0]

        def change(record: Document) -> Optional[bool]:
            if not is_bound(record):
                return record.get("change") != "DELETED"
            pod = record["object"]
            pod["spec"]["nodeName"] = where["pool"]
            pod["metadata"]["annotations"]["qgpu.io/assigned"] = f'{{"main":["{where["device"]}"]}}'
            pod["status"] = {"phase": "Running"}
            return True

        self.assert_found(changed(change), "is given by pods and by claims")

    def test_a_task_of_nobody(self) -> None:
        def change(record: Document) -> None:
            if record["kind"] == "Manager" and "tasks" in record:
                record["tasks"].append({"name": "default/left-over/main"})

        self.assert_found(changed(change), "has task default/left-over/main of nobody")

    def test_a_running_pod_that_its_manager_does_not_know(self) -> None:
        def change(record: Document) -> None:
            if record["kind"] == "Manager" and "tasks" in record:
                record["tasks"] = []

        self.assert_found(changed(change), "has no task default/")

    def test_a_manager_that_gives_more_than_it_has(self) -> None:
        def change(record: Document) -> None:
            for card in record.get("cards", []):
                card["mem_bound_bytes"] *= 100

        self.assert_found(changed(change), "says mem_bound_bytes")

    def test_a_pod_that_waits_though_there_is_room(self) -> None:
        first = next(at for at, record in enumerate(RECORD) if is_bound(record))
        waits = RECORD[first]["object"]["metadata"]["uid"]
        until = [copy.deepcopy(one) for one in RECORD[:first]]
        last = copy.deepcopy(next(one for one in RECORD if one["kind"] == "Manager"))
        last["at"] = RECORD[first]["at"] + STUCK + 1
        self.assertTrue(any(one["kind"] == "Pod" and one["object"]["metadata"]["uid"] == waits
                            for one in until))
        self.assert_found([*until, last], f"waits since {STUCK:g} s, with room at ")

    def test_a_pod_that_is_bound_and_does_not_run(self) -> None:
        first = next(at for at, record in enumerate(RECORD) if is_bound(record))
        last = copy.deepcopy(next(one for one in RECORD if one["kind"] == "Manager"))
        last["at"] = RECORD[first]["at"] + STUCK + 1
        self.assert_found([*RECORD[: first + 1], last], "is bound and does not run")


if __name__ == "__main__":
    unittest.main()
