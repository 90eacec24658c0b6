"""What packs cost that are installed and not used: CPU of commands that load none, beside the same without them.

`python -m bench.packs [--packs 50] [--turns 60]`
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

#: Commands that import nobody's code.
COMMANDS = (("--help",), ("plugins", "list"), ("plugins", "list", "--json"))
PROGRAM = "import sys, _iron_start; sys.argv[0] = 'iron'; _iron_start.iron()"
#: What a pack offers: an entry in each group that a command might look at.
GROUPS = ("operators", "lowerings", "backends", "models", "checkpoints", "tokenizers", "formats", "devices", "commands", "plugins")


def install(folder: Path, count: int) -> None:
    """Put packs on the path `folder` as an installer would, iron-many0 and so on, each with an entry in every group and a module that
    cannot be imported."""
    for i in range(count):
        info = folder / f"iron_many{i}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: iron-many{i}\nVersion: 1.0\nRequires-Dist: iron-core<3,>=2\n")
        entries = "".join(f"[iron.{group}.v1]\nmany{i}.{group} = many{i}_pack.{group}:It\n" for group in GROUPS)
        (info / "entry_points.txt").write_text(entries)
        (folder / f"many{i}_pack.py").write_text("raise RuntimeError('nobody asked for this pack')\n")


def seconds(command: tuple[str, ...], path: Path | None) -> float:
    """CPU seconds of `iron COMMAND` in a process of its own, with a folder in front of the path."""
    env = os.environ | ({} if path is None else {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", PROGRAM, *command], env=env, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def lines(count: int, turns: int) -> list[str]:
    """The table: the least of turns that take the two one after the other, in ms. Other programs only ever add to it."""
    rows = [f"| command | without | {count} packs |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder), count)
        for command in COMMANDS:
            pairs = [(seconds(command, None), seconds(command, Path(folder))) for _ in range(turns)]
            without, beside = (1e3 * min(times) for times in zip(*pairs, strict=True))
            rows.append(f"| `iron {' '.join(command)}` | {without:.0f} ms | {beside:.0f} ms |")
    return rows


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.packs", description=__doc__.partition("\n")[0])
    parser.add_argument("--packs", type=int, default=50, help="how many (50)")
    parser.add_argument("--turns", type=int, default=60, help="runs of each (60)")
    given = parser.parse_args(argv)
    print("\n".join(lines(given.packs, given.turns)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
