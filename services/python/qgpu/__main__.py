"""python3 -m qgpu run -- CMD, and python3 -m qgpu kernel install."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Dict, List, NoReturn, Optional

from . import Error, Manager
from ._connection import word

_REFUSED = 125  # 126 and 127 as a shell has them


def _add_asked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", default="1", metavar="SIZE", help="1.5GiB, 512MiB, or GiB (1)")
    parser.add_argument("--core", type=int, metavar="PERCENT", help="percent of a card (10)")
    parser.add_argument("--class", dest="class_", choices=["online", "offline", "ordinary"])
    parser.add_argument("--cards", type=int, metavar="N", help="more than one: whole cards")
    parser.add_argument("--card", metavar="ID", help="a certain card")
    parser.add_argument("--socket", metavar="PATH", help="of the manager (QGPU_SOCKET)")
    parser.add_argument("--wait", action="store_true", help="for room, however long that takes")


def _parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m qgpu")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="CMD as a task, in this very process")
    run.add_argument("--name", help="of the task")
    _add_asked(run)
    run.add_argument("program", nargs="+", metavar="CMD", help="after --")
    kernel = commands.add_parser("kernel", help="a kernel of Jupyter whose notebooks are tasks")
    install = kernel.add_subparsers(dest="action", required=True).add_parser("install")
    install.add_argument("--name", default="qgpu", help="of the kernel and its tasks (qgpu)")
    install.add_argument("--display-name", help="as Jupyter shows it")
    install.add_argument("--prefix", metavar="DIR", help="below DIR/share/jupyter (of the user)")
    _add_asked(install)
    return parser.parse_args(argv)


def _run(options: argparse.Namespace) -> NoReturn:
    task = Manager(options.socket).task(
        memory=options.memory,
        core=options.core,
        name=options.name or os.path.basename(options.program[0]),
        class_=options.class_,
        cards=options.cards,
        card=options.card,
        wait=options.wait,
    )
    task.execute(options.program)


def kernel_spec(options: argparse.Namespace) -> Dict[str, Any]:
    """The kernel's process is the task's owner: Jupyter interrupts and kills it as any other, and
    its task ends with it."""
    argv = [sys.executable, "-m", "qgpu", "run", "--name", options.name, "--memory", options.memory]
    share = "" if options.core is None else f", {options.core} %"
    for flag, value in (
        ("--core", options.core),
        ("--class", options.class_),
        ("--cards", options.cards),
        ("--card", options.card),
        ("--socket", options.socket and os.path.abspath(options.socket)),
    ):
        argv += [] if value is None else [flag, str(value)]
    argv += ["--wait"] if options.wait else []
    argv += ["--", sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    shown = options.display_name or f"Python 3 (qgpu: memory {options.memory}{share})"
    return {"argv": argv, "display_name": shown, "language": "python",
            "metadata": {"debugger": True}}


def _data_folder(prefix: Optional[str]) -> str:
    if prefix:
        return os.path.join(prefix, "share", "jupyter")
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    return os.environ.get("JUPYTER_DATA_DIR") or os.path.join(home, "jupyter")


def _install(options: argparse.Namespace) -> None:
    name = word(options.name)
    if "/" in name or name.startswith("."):
        raise Error(f"{name!r} is no kernel's name: letters, digits, - and _", "invalid-argument")
    folder = os.path.join(_data_folder(options.prefix), "kernels", name)
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "kernel.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(kernel_spec(options), file, indent=1)
        file.write("\n")
    print(path)


def main(argv: Optional[List[str]] = None) -> int:
    options = _parse(argv)
    try:
        if options.command == "kernel":
            _install(options)
            return 0
        _run(options)
    except Error as error:
        print(f"qgpu: {error}", file=sys.stderr)
        return _REFUSED
    except OSError as error:
        print(f"qgpu: {error}", file=sys.stderr)
        if options.command == "kernel":
            return 1
        return 127 if isinstance(error, FileNotFoundError) else 126
    return 0


if __name__ == "__main__":
    sys.exit(main())
