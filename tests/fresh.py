"""What an import of ours brings along, in interpreters that have imported nothing of ours before."""

from __future__ import annotations

import subprocess
import sys

#: Other projects' modules take the longest to import, so they are imported once, and each piece of code runs in a fork of
#: the interpreter that has them.
RUN = """
import os, sys
import attrs, click, ml_dtypes, pluggy
for code in sys.argv[1:]:
    if not os.fork():
        exec(code, {})
        print("\\nsys.modules:", *sys.modules, flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"failed: {code}")
"""


def modules_after(*codes: str) -> dict[str, set[str]]:
    """The names in sys.modules after each of some pieces of code, by the code; other projects' are there in any case."""
    done = subprocess.run([sys.executable, "-c", RUN, *codes], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [set(line.split()[1:]) for line in done.stdout.splitlines() if line.startswith("sys.modules:")]
    return dict(zip(codes, found, strict=True))
