"""docs/operate/messages.md says what is said: each row of its tables is run as a reader would run
it, under the daemons of its section, and compared to the letter.

python3 messages_test.py BIN PAGE SOURCES: the folder of the built programs, the page, and
services/python. The machine is the test's own, by namespaces of mounts and networks, so that
folders and ports are those that the page names.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

BUILT, PAGE, SOURCES = (Path(word).resolve() for word in sys.argv[1:4])
BIN = Path("/mnt/bin")
HOME = Path("/mnt/home")
PATIENCE = 60.0
ENTERED = "QGPU_TEST_ENTERED"


def enter_own_machine():
    """Starts this program again where nobody else is, or ends with 77."""
    enter = ["unshare", "--mount", "--net"]
    if subprocess.run([*enter, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("skipped: no namespaces are allowed here")
        sys.exit(77)
    os.execvpe(enter[0], [*enter, sys.executable, *sys.argv], {**os.environ, ENTERED: "yes"})


def furnish():
    """What a reader has: the programs in PATH, empty folders, a loopback. Another user can't look
    into everybody's build folder, so qgpuctl is copied."""
    for folder in ("/run", "/var/lib", "/mnt"):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", folder], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    BIN.mkdir()
    HOME.mkdir()
    shutil.copy(BUILT / "qgpuctl", BIN)
    for name in ("qgpu-manager", "qgpu-scheduler", "qgpu-work", "qgpu-kubelet-plugin"):
        (BIN / name).symlink_to(BUILT / name)
    (BIN.parent / "lib").symlink_to(BUILT.parent / "lib")


def environment():
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("QGPU_", "XDG_", "KUBE", "POCL_"))}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCES),
            "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(HOME)}


def sections(text):
    """(title, lines of its shell block, rows) for each table of the page, in order."""
    title, setup, rows, fenced, found = "", [], [], False, []
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("```"):
            fenced = not fenced
            setup = [] if line == "```sh" else setup
        elif fenced:
            setup.append(line)
        elif line.startswith("## "):
            title, setup = line[3:], []
        elif row := re.fullmatch(r"\| `\$ (.*?)` \| (\d+) \| (.*) \|", line):
            rows.append((number, row[1], int(row[2]), [said(s) for s in row[3].split("<br>")]))
        elif rows and not line.startswith("|"):
            found.append((title, setup, rows))
            rows = []
    return found


def said(span):
    """What stands between the quotes of a piece of code in Markdown."""
    inner = re.fullmatch(r"(`+)(.+)\1", span)[2]
    return inner[1:] if inner.startswith(" `") else inner


class Reader:
    """Starts what a section's block starts, and ends it."""

    def __init__(self, setup):
        self._started = []
        for line in setup:
            self._start(line.rstrip("& "))

    def _start(self, line):
        log = open(HOME / f"log-{len(self._started)}", "wb+")
        child = subprocess.Popen(["sh", "-c", f"exec {line}"], env=environment(), cwd=HOME,
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._started.append((child, log))
        self._await(line, child, log)

    def _await(self, line, child, log):
        scheduler = line.startswith("qgpu-scheduler")
        there = ["qgpuctl", "--cluster", "status"] if scheduler else ["qgpuctl", "status"]
        if "--scheduler=" in line:  # both have to know of each other
            joined = "qgpuctl --socket /run/qgpu/manager.sock -o json status | grep '\"joined:'"
            there = ["sh", "-c", f"{joined} && qgpuctl -o name nodes"]
        elif line.startswith("qgpuctl run"):
            there = ["qgpuctl", "-o", "name", "tasks"]
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and child.poll() is None:
            answer = subprocess.run(there, env=environment(), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            if answer.returncode == 0 and answer.stdout.strip():
                return
        log.seek(0)
        raise AssertionError(f"{line}: {log.read().decode()}")

    def close(self):
        for child, log in reversed(self._started):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
                child.wait(PATIENCE)
            log.close()
        for folder in ("/run/qgpu", "/var/lib/qgpu"):
            shutil.rmtree(folder, ignore_errors=True)


class Messages(unittest.TestCase):
    maxDiff = None

    def test_are_as_the_page_has_them(self):
        tried = 0
        for title, setup, rows in sections(PAGE.read_text()):
            reader = Reader(setup)
            try:
                for number, command, status, lines in rows:
                    if "--cards=nvidia" in command and os.path.exists("/dev/nvidiactl"):
                        continue
                    with self.subTest(section=title, line=number, command=command):
                        self._try(command, status, lines)
                    tried += 1
            finally:
                reader.close()
        self.assertGreater(tried, 40)

    def _try(self, command, status, lines):
        line = command.replace("BIN", str(BIN))
        done = subprocess.run(["sh", "-c", line], env=environment(), cwd=HOME, timeout=PATIENCE,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        told = [line.replace(str(BIN), "BIN") for line in done.stdout.splitlines()]
        self.assertEqual((told, done.returncode), (lines, status))


if __name__ == "__main__":
    if ENTERED not in os.environ:
        enter_own_machine()
    furnish()
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
