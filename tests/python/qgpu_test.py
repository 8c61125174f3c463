"""The Python package against a real manager and scheduler, with real programs on PoCL.

python3 qgpu_test.py BIN SOURCES: the folder of the built programs, and services/python. Each test
has daemons of its own in a folder of its own, without a port that anybody else could want.
"""

import contextlib
import ctypes
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path

BIN, SOURCES = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(SOURCES))
os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
os.environ["PYTHONPATH"] = str(SOURCES)
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
sys.dont_write_bytecode = True
for name in ("QGPU_SOCKET", "QGPU_TOKEN", "QGPU_SERVER", "QGPU_LIB", "KUBECONFIG"):
    os.environ.pop(name, None)

import qgpu  # noqa: E402
from qgpu import __main__ as command  # noqa: E402
from qgpu import _connection  # noqa: E402

PATIENCE = 60.0
CPU_CARD = ("--cards=opencl", "--max-tasks-per-card=8")
SIMULATED = ("--cards=sim:2x16",)
PR_SET_PDEATHSIG = 1


def die_with_the_test():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A daemon with its sockets and database in `folder`."""

    def __init__(self, name, folder, *arguments):
        self.folder = folder
        self.socket = f"{folder}/run/{name}.sock"
        self._line = [BIN / f"qgpu-{name}", f"--run-dir={folder}/run",
                      f"--dbfile={folder}/{name}.db", "--http=127.0.0.1:0", *arguments]
        self._log = open(f"{folder}/{name}.log", "ab")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            self._line, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            preexec_fn=die_with_the_test)
        return self

    def serves(self):
        """Waits until it answers, as one who starts a daemon may."""
        for _ in _connection.pauses():
            if self.process.poll() is not None:
                raise AssertionError(Path(self._log.name).read_text())
            try:
                return qgpu.Manager(self.socket).status()
            except (qgpu.NoDaemon, qgpu.Timeout):
                continue

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self._log.close()


class WithManager(unittest.TestCase):
    CARDS = SIMULATED

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.daemon = self.start("manager", "--web=127.0.0.1:0", *self.CARDS)
        self.manager = qgpu.Manager(self.daemon.socket)

    def start(self, name, *arguments):
        daemon = Daemon(name, self.folder, *arguments)
        self.addCleanup(daemon.close)
        daemon.start().serves()
        return daemon

    def python(self, program, **environment):
        """Another interpreter to its end, asking the same manager."""
        return subprocess.run(
            [sys.executable, *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
            env={**os.environ, "QGPU_SOCKET": self.daemon.socket, **environment})

    def refused(self, code, **asked):
        with self.assertRaises(qgpu.Error) as caught:
            self.manager.task(**asked)
        self.assertEqual(caught.exception.code, code)
        return str(caught.exception)


class Programs(WithManager):
    CARDS = CPU_CARD

    def test_run_in_the_task_and_their_work_is_accounted(self):
        with self.manager.task(memory="512MiB", core=30, name="train") as task:
            done = task.run([BIN / "qgpu-work", "--seconds=1", "--json"], stdout=subprocess.PIPE)
            self.assertEqual(done.returncode, 0)
            info = task.info()
            self.assertEqual((info["name"], info["share_permille"]), ("train", 300))
            self.assertEqual(info["mem_bytes"], 512 << 20)
            self.assertGreater(info["launches"], 0)
            self.assertGreater(info["gpu_ns"], 0)
            self.assertGreaterEqual(info["mem_peak_bytes"], 16 << 20)
            self.assertEqual(info["owner_pid"], os.getpid())
        self.assertEqual(self.manager.tasks(), [])

    def test_meet_their_quota(self):
        with self.manager.task(memory="64MiB") as task:
            done = task.run([BIN / "qgpu-work", "--seconds=1", "--memory-mib=100"],
                            stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 3)
        self.assertIn(b"100 MiB refused", done.stderr)

    def test_of_two_threads_have_a_task_each(self):
        results = {}

        def work(name):
            with self.manager.task(name=name, core=20, memory="128MiB") as task:
                code = task.run([BIN / "qgpu-work", "--seconds=1"], stdout=subprocess.DEVNULL)
                info = task.info()
                results[info["name"]] = (code.returncode, info["launches"] > 0, task.id)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertEqual({r[:2] for r in results.values()}, {(0, True)})
        self.assertEqual(len({r[2] for r in results.values()}), 2)
        self.assertEqual(self.manager.tasks(), [])

    def test_go_on_while_the_manager_is_killed_and_comes_back(self):
        events = self.manager.events(follow=True, timeout=PATIENCE)
        with self.manager.task(name="lives", core=50) as task:
            program = task.popen([BIN / "qgpu-work", "--seconds=0", "--control"],
                                 stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            self.addCleanup(program.wait)
            self.addCleanup(program.kill)
            for _ in _connection.pauses():
                if task.info()["launches"] > 3:
                    break
            before = next(e["seq"] for e in events if e["kind"] == "task-bound")
            self.daemon.kill()
            with self.assertRaises(qgpu.NoDaemon) as caught:
                task.info()
            self.assertIn("no daemon answers at", str(caught.exception))
            self.daemon.start().serves()
            self.assertEqual(task.info()["name"], "lives")
            # The same iterator tells what the new manager has to say, and nothing twice.
            later = next(e for e in events if e["kind"] == "node-started" and e["seq"] > before)
            self.assertGreater(later["seq"], before)
            program.communicate(b"end\n", timeout=PATIENCE)
            self.assertEqual(program.returncode, 0)
        self.assertEqual(self.manager.tasks(), [])

    def test_may_be_the_interpreter_itself(self):
        program = Path(self.folder, "train.py")
        program.write_text(
            "import os, subprocess, sys, qgpu\n"
            "qgpu.become_task(memory='256MiB', core=20, name='itself')\n"
            "manager = qgpu.Manager()\n"
            "task = manager.find('itself')\n"
            "loaded = 'libqgpu.so' in open('/proc/self/maps').read()\n"
            "work = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
            "after = manager.find('itself')\n"
            "print(task['owner_pid'] == os.getpid(), loaded, work, after['launches'] > 0)\n")
        done = self.python([str(program), str(BIN / "qgpu-work"), "--seconds=1"])
        self.assertEqual((done.stdout, done.returncode), ("True True 0 True\n", 0), done.stderr)
        self.assertTrue(self.gone("itself"))

    def gone(self, name):
        """The manager ends a task after it saw its owner's end."""
        for event in self.manager.events(follow=True, timeout=PATIENCE):
            if event["kind"] == "task-ended":
                return name not in [t["name"] for t in self.manager.tasks()]

    def test_are_started_by_the_command_in_the_same_process(self):
        done = self.python(["-m", "qgpu", "run", "--memory", "256MiB", "--core", "20", "--",
                            str(BIN / "qgpu-work"), "--seconds=1", "--json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(self.gone("qgpu-work"))
        ended = self.python(["-m", "qgpu", "run", "--", "sh", "-c", "exit 7"])
        self.assertEqual(ended.returncode, 7)


class Tasks(WithManager):
    def test_are_refused_with_the_reason_and_the_code_of_the_manager(self):
        self.assertIn("16 GiB in all", self.refused("infeasible", memory="100GiB"))
        for asked, reason in (
            ({"memory": "2 pounds"}, "memory: expected a size such as"),
            ({"memory": -1}, "memory: expected a size such as"),
            ({"memory": float("nan")}, "memory: nan is no number of GiB"),
            ({"core": 150}, "core_percent: expected"),
            ({"class_": "best"}, "online, offline or ordinary"),
        ):
            self.assertIn(reason, self.refused("invalid-argument", **asked))
        self.assertIn("no card", self.refused("not-found", card="no-such-card"))

    def test_take_sizes_as_people_write_them(self):
        sizes = {"1.5GiB": 1536, "512MiB": 512, "2G": 2048, 3: 3072, 0.5: 512}
        for said, mib in sizes.items():
            with self.manager.task(memory=said) as task:
                self.assertEqual(task.info()["mem_bytes"], mib << 20, said)

    def test_wait_for_room_on_a_full_card(self):
        full = [self.manager.task(cards=2, memory=16)]
        with self.assertRaises(qgpu.NoRoom) as caught:
            self.manager.task(memory=16)
        self.assertEqual(caught.exception.code, "no-room")
        with self.assertRaises(qgpu.Timeout) as late:
            self.manager.task(memory=16, wait=0.0)
        self.assertIn("no room within 0.0 s: ", str(late.exception))
        self.assertEqual(late.exception.code, "no-room")

        bound, watching = [], threading.Event()
        waiter = qgpu.Manager(self.daemon.socket)
        ask = waiter.ask

        def told(line):  # the task before ends when this one was refused
            try:
                return ask(line)
            finally:
                watching.set()

        waiter.ask = told
        thread = threading.Thread(
            target=lambda: bound.append(waiter.task(memory=16, wait=PATIENCE)))
        thread.start()
        self.assertTrue(watching.wait(PATIENCE))
        full.pop().end()
        thread.join(PATIENCE)
        self.assertEqual(len(bound), 1)
        bound[0].end()
        self.assertEqual(self.manager.tasks(), [])

    def test_wait_over_a_restart_of_the_manager_and_are_bound_once(self):
        holder = self.manager.task(cards=2, memory=16, name="holder")
        bound, refused = [], threading.Event()
        waiter = qgpu.Manager(self.daemon.socket)
        ask = waiter.ask

        def told(line):
            try:
                return ask(line)
            except qgpu.NoRoom:
                refused.set()
                raise

        waiter.ask = told
        thread = threading.Thread(
            target=lambda: bound.append(waiter.task(memory=16, name="waits", wait=PATIENCE)))
        thread.start()
        self.assertTrue(refused.wait(PATIENCE))
        self.daemon.kill()
        self.daemon.start().serves()
        holder.end()
        thread.join(PATIENCE)
        self.assertEqual([t["name"] for t in self.manager.tasks()], ["waits"])
        bound[0].end()

    def test_end_once_and_not_by_a_fork(self):
        task = self.manager.task()
        if (child := os.fork()) == 0:
            task.end()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(self.manager.tasks()), 1)
        self.manager.ask(f"evict {task.id}")
        task.end()
        task.end()
        self.assertEqual(self.manager.tasks(), [])

    def test_end_with_the_block_also_by_an_exception(self):
        with self.assertRaisesRegex(ValueError, "of the program"):
            with self.manager.task():
                raise ValueError("of the program")
        self.assertEqual(self.manager.tasks(), [])

    def test_take_no_code_and_no_path_from_whoever_answers(self):
        answer = {"task": 1, "cards": ["c"], "env": {
            "LD_PRELOAD": "/evil.so", "QGPU_SOCKET": "/evil.sock", "POCL_DEVICES": "/evil",
            "PYTHONPATH": "evil", "QGPU_TOKEN": "abc"}}
        task = qgpu.Task(self.manager, answer)
        library = str(BIN.parent / "lib" / "libqgpu.so")
        given = task.environment({"PATH": "/bin", "POCL_CACHE_DIR": "x", "LD_PRELOAD": "/mine.so",
                                  "OPENCL_LAYERS": library})
        self.assertEqual(given, {
            "PATH": "/bin", "QGPU_TOKEN": "abc",
            "QGPU_SOCKET": f"{self.folder}/run/attach.sock",
            "LD_PRELOAD": f"{library}:/mine.so", "OPENCL_LAYERS": library})

    def test_are_found_by_number_and_name(self):
        with self.manager.task(name="a") as one, self.manager.task(name="b"), \
                self.manager.task(name="b"):
            self.assertEqual(self.manager.find("a")["id"], one.id)
            self.assertEqual(self.manager.find(str(one.id))["name"], "a")
            for name, text in (("b", "several tasks"), ("c", "no task is called c")):
                with self.assertRaisesRegex(qgpu.Error, text):
                    self.manager.find(name)
            self.assertIn(one.cards[0], self.manager.explain("a")["text"] + str(one.cards))
            self.assertTrue(one.explain()["lines"])
            self.manager.end("a")
            self.assertEqual(len(self.manager.tasks()), 2)

    def test_of_a_typed_interpreter_are_refused_with_the_way_to_go(self):
        program = "import sys; sys.ps1 = '>>> '; import qgpu; qgpu.become_task()"
        done = self.python(["-c", program])
        self.assertIn("python3 -m qgpu kernel install", done.stderr)
        program = "import qgpu; qgpu.become_task(); print('once')"
        again = self.python(["-c", program], QGPU_TOKEN="x")
        self.assertEqual(again.stdout, "once\n")
        whole = self.python(["-c", "import qgpu; qgpu.become_task(core=7); print(qgpu.in_task(), "
                             "qgpu.tasks()[0]['share_permille'])"])
        self.assertEqual(whole.stdout, "True 70\n", whole.stderr)

    def test_refused_by_the_command_are_125(self):
        done = self.python(["-m", "qgpu", "run", "--memory", "100GiB", "--", "true"])
        self.assertEqual(done.returncode, 125)
        self.assertIn("qgpu: ", done.stderr)
        self.assertIn("16 GiB in all", done.stderr)
        missing = self.python(["-m", "qgpu", "run", "--", "/nonexistent"])
        self.assertEqual(missing.returncode, 127)
        self.assertEqual(self.manager.tasks(), [])


class Lists(WithManager):
    def test_tell_cards_and_events(self):
        self.assertEqual([c["id"] for c in self.manager.cards()], ["sim-0", "sim-1"])
        self.assertEqual(self.manager.status()["cards"], 2)
        task = self.manager.task(name="told")
        kinds = [e["kind"] for e in self.manager.events()]
        self.assertEqual(kinds, ["node-started", "task-bound"])
        last = list(self.manager.events())[-1]["seq"]
        news = self.manager.events(last, follow=True, timeout=PATIENCE)
        task.end()
        event = next(news)
        self.assertEqual((event["kind"], event["task"]), ("task-ended", task.id))
        with self.assertRaisesRegex(qgpu.Timeout, "no event within 0.0 s"):
            next(self.manager.events(event["seq"], follow=True, timeout=0.0))

    def test_are_asked_for_by_one_line(self):
        for line in ("", "  ", "tasks\nevict 1", "tasks\revict 1"):
            with self.assertRaisesRegex(qgpu.Error, "is no command of one line"):
                self.manager.ask(line)
        with self.assertRaisesRegex(qgpu.Error, "is no name"):
            self.manager.explain("1 2\n")

    def test_of_a_daemon_that_is_not_there_say_so(self):
        for socket in (f"{self.folder}/no.sock", f"{self.folder}/{'x' * 200}", self.folder):
            with self.assertRaises(qgpu.NoDaemon) as caught:
                qgpu.Manager(socket).tasks()
            self.assertIn(f"no daemon answers at {socket} (", str(caught.exception))
            self.assertEqual(caught.exception.code, "unavailable")
            self.assertIsInstance(caught.exception, ConnectionError)
            again = pickle.loads(pickle.dumps(caught.exception))
            self.assertEqual((str(again), again.code), (str(caught.exception), "unavailable"))

    def test_of_a_daemon_that_is_stopped_end_in_time(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.addCleanup(self.daemon.process.send_signal, signal.SIGCONT)
        with self.assertRaises(TimeoutError) as caught:
            qgpu.Manager(self.daemon.socket, timeout=0.05).tasks()
        self.assertIn("does not answer", str(caught.exception))

    def test_find_their_daemon_as_qgpuctl_does(self):
        run = f"{self.folder}/run"
        program = ["-c", "import qgpu; print(qgpu.Manager().socket, qgpu.Scheduler().socket)"]
        task = self.python(program, QGPU_SOCKET=f"{run}/attach.sock")
        self.assertEqual(task.stdout.split()[0], f"{run}/manager.sock")
        cluster = self.python(program, QGPU_SOCKET=f"{run}/scheduler.sock")
        self.assertEqual(cluster.stdout.split()[1], f"{run}/scheduler.sock")
        self.assertNotEqual(cluster.stdout.split()[0], f"{run}/scheduler.sock")


class Cluster(WithManager):
    def setUp(self):
        super().setUp()
        daemon = self.start("scheduler", "--rpc=127.0.0.1:0")
        self.scheduler = qgpu.Scheduler(daemon.socket)
        self.daemon.kill()
        node = Daemon("manager", self.folder, "--web=127.0.0.1:0", *SIMULATED, "--nodename=n",
                      f"--scheduler=unix:{self.folder}/run/scheduler.rpc")
        self.addCleanup(node.close)
        node.start().serves()
        for event in self.scheduler.events(follow=True, timeout=PATIENCE):
            if event["kind"] == "node-joined":
                break

    def test_places_explains_and_ends_tasks(self):
        self.assertEqual([n["name"] for n in self.scheduler.nodes()], ["n"])
        placed = self.scheduler.submit(memory="2GiB", core=30, name="train")
        self.assertEqual((placed["waiting"], placed["node"]), (False, "n"))
        self.assertIn("n", self.scheduler.explain("train")["text"])
        self.assertFalse(self.scheduler.explain(memory="300GiB")["fits"])
        self.assertEqual(len(self.scheduler.what_if_place(3, memory="1GiB")["landed"]), 3)
        self.assertIn("stay", self.scheduler.what_if_drain("n"))
        with self.assertRaisesRegex(qgpu.Error, "no node 'x' in this cluster"):
            self.scheduler.what_if_drain("x")
        with self.assertRaisesRegex(qgpu.Error, '"colour" is no field of a SPEC'):
            self.scheduler.submit(colour="red")
        news = self.scheduler.events(follow=True, timeout=PATIENCE)
        self.scheduler.delete("train")
        self.assertTrue(any(e["kind"] == "task-ended" for e in news))
        self.assertEqual(self.scheduler.tasks(), [])

    def test_waits_for_room_and_gives_its_place_in_the_queue_back(self):
        first = self.scheduler.submit(cards=2, memory=16, name="whole")
        with self.assertRaisesRegex(qgpu.Timeout, "no room within 0.0 s: "):
            self.scheduler.submit(memory=16, name="late", wait=0.0)
        self.assertEqual([t["name"] for t in self.scheduler.tasks()], ["whole"])
        placed = []
        thread = threading.Thread(target=lambda: placed.append(
            self.scheduler.submit(memory=16, name="next", wait=PATIENCE)))
        thread.start()
        for event in self.scheduler.events(follow=True, timeout=PATIENCE):
            if event["kind"] == "task-submitted" and event["text"].startswith("next"):
                break
        self.scheduler.delete(first["task"])
        thread.join(PATIENCE)
        self.assertEqual(placed[0]["node"], "n")


class Package(unittest.TestCase):
    def test_is_of_the_version_that_the_programs_are_of(self):
        said = subprocess.check_output([BIN / "qgpuctl", "version"], text=True)
        self.assertEqual(said, f"qgpuctl {qgpu.__version__}\n")


class Kernel(unittest.TestCase):
    def test_is_installed_where_jupyter_looks(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(said), \
                contextlib.redirect_stderr(said):
            code = command.main(["kernel", "install", "--prefix", folder, "--memory", "2GiB",
                                 "--core", "30", "--name", "shared"])
            self.assertEqual(code, 0)
            path = Path(folder, "share/jupyter/kernels/shared/kernel.json")
            spec = json.loads(path.read_text())
            for name in ("../x", ".hidden", "a b"):
                self.assertEqual(command.main(["kernel", "install", "--name", name]), 125)
        self.assertEqual(spec["display_name"], "Python 3 (qgpu: memory 2GiB, 30 %)")
        self.assertEqual(spec["argv"], [
            sys.executable, "-m", "qgpu", "run", "--name", "shared", "--memory", "2GiB", "--core",
            "30", "--", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"])
        self.assertTrue(said.getvalue().startswith(f"{path}\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
