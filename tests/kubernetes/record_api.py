#!/usr/bin/env python3
"""Asks a real API server what the stand-in of tests is asked, and keeps what it answers.

    record_api.py KUBE_APISERVER [ETCD]

starts the two programs in a folder of its own, with nothing else in the cluster. The exchanges are
tests/unit/services/kubernetes/client/recorded/exchanges.json, in their order; answers.json beside
it is written. A value `${NAME/a/b}` of a request is a part of the answer to the exchange that is
kept `as` NAME; `account` is who asks, if it is no administrator; `before` says what is done first.
What is another thing in each run (versions, UIDs, times) becomes "*" in the answers.
kube_recorded_test asks the stand-in the same, and compares.
"""

import http.client
import json
import pathlib
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
RECORDED = HERE.parent / "unit/services/kubernetes/client/recorded"
ANY = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime",
       "continue", "time"}
UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def part(kept, path):
    for key in path.split("/"):
        kept = kept[key]
    return kept


def filled(text, kept):
    """The text with its `${...}` as they are now."""
    return re.sub(r"\$\{([^}]*)\}", lambda found: part(kept, found.group(1)), text)


def steady(value):
    """What is the same in each run; kube_recorded_test has the same patterns."""
    if isinstance(value, dict):
        return {
            key: "*" if key in ANY and inner else steady(inner)
            for key, inner in value.items()
            if key != "managedFields"
        }
    if isinstance(value, list):
        return [steady(inner) for inner in value]
    if isinstance(value, str):
        return re.sub(r"too old resource version: \d+ \(\d+\)", "too old resource version: * (*)",
                      UID.sub("*", value))
    return value


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Cluster:
    """An API server and its etcd."""

    TOKENS = {"admin": "a-token", "nobody": "n-token", "stranger": "s-token"}

    def __init__(self, apiserver, etcd, folder):
        self.programs = []
        self.port, client, peer = free_port(), free_port(), free_port()
        self.etcd = f"http://127.0.0.1:{client}"
        other = f"http://127.0.0.1:{peer}"
        with open(folder / "tokens", "w", encoding="utf-8") as file:
            file.write("a-token,admin,1,system:masters\n")
            file.write("n-token,system:serviceaccount:kube-system:nobody,2\n")
        key = folder / "key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        self.log = open(folder / "log", "w", encoding="utf-8")
        self.store = self.started(
            [etcd, "--data-dir", folder / "etcd", "--listen-client-urls", self.etcd,
             "--advertise-client-urls", self.etcd, "--listen-peer-urls", other,
             "--initial-advertise-peer-urls", other, "--initial-cluster", f"default={other}"])
        self.command = [
            apiserver, "--etcd-servers", self.etcd, "--secure-port", str(self.port),
            "--bind-address", "127.0.0.1", "--cert-dir", folder / "certificates",
            "--token-auth-file", folder / "tokens", "--authorization-mode", "RBAC",
            "--service-cluster-ip-range", "10.0.0.0/24",
            "--service-account-issuer", "https://kubernetes.default",
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--disable-admission-plugins", "ServiceAccount"]
        self.server = self.started(self.command)

    def started(self, command):
        program = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        self.programs.append(program)
        return program

    def end(self):
        for program in self.programs:
            program.kill()
            program.wait()

    def send(self, method, path, account="admin", body=None, kind=None):
        context = ssl._create_unverified_context()
        link = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=60)
        headers = {"Authorization": "Bearer " + self.TOKENS[account]}
        if kind:
            headers["Content-Type"] = kind
        link.request(method, path, body, headers)
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text

    def ready(self):
        for _ in range(600):
            if self.server.poll() is not None:
                break
            try:
                if self.send("GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        raise SystemExit("record_api.py: the API server ended, or is not ready after 120 s")

    def forget(self):
        """Compacts its etcd and starts anew: what is older can't be listed or watched any more."""

        def post(path, body):
            request = urllib.request.Request(self.etcd + path, json.dumps(body).encode())
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)

        now = post("/v3/kv/put", {"key": "YQ==", "value": "YQ=="})["header"]["revision"]
        self.server.kill()
        self.server.wait()
        post("/v3/kv/compaction", {"revision": now, "physical": True})
        self.server = self.started(self.command)
        self.ready()

    def ask(self, one, kept):
        body = filled(json.dumps(one["body"]), kept) if "body" in one else None
        return self.send(one["method"], filled(one["path"], kept), one.get("account", "admin"),
                         body, one.get("type"))


def record(cluster):
    kept, answers = {}, []
    for one in json.loads((RECORDED / "exchanges.json").read_text()):
        if one.get("before") == "forget":
            cluster.forget()
        status, text = cluster.ask(one, kept)
        lines = one.get("lines")
        said = [parsed(line) for line in text.splitlines()] if lines else parsed(text)
        if "as" in one:
            kept[one["as"]] = said
        answers.append({"name": one["name"], "status": status, "said": steady(said)})
        print(status, one["name"])
    return answers


def main():
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cluster = Cluster(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "etcd", folder)
        try:
            cluster.ready()
            answers = record(cluster)
        except BaseException:
            print((folder / "log").read_text()[-4000:], file=sys.stderr)
            raise
        finally:
            cluster.end()
    with open(RECORDED / "answers.json", "w", encoding="utf-8") as file:
        json.dump(answers, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
