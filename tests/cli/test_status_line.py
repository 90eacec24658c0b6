"""The line that says what is done: on a terminal it gives way to all that is written, and never wraps."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import pytest

from iron_core.cli.status_line import cut

HEAD = """
import sys, time, warnings
import click
from iron_core.cli import entry, progress, streams
from iron_core.cli.progress import working
from iron_core.aside import aside
streams.adopt()
warnings.showwarning = entry._warn
progress._EVERY_S = 0.02
"""


def on_a_terminal(code: str, columns: int = 80) -> str:
    """What a terminal of so many columns gets from a program."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {**os.environ, "TERM": "xterm"}
    program = subprocess.Popen([sys.executable, "-c", HEAD + code], stdin=slave, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    got = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:
            break
        got += piece
        if not piece:
            break
    os.close(master)
    assert program.wait() == 0, got.decode()
    return got.decode()


def screen(written: str, columns: int = 80) -> list[str]:
    """The lines that a terminal shows in the end, from the few controls that are written."""
    lines, at = [""], 0
    for part in re.findall(r"\r|\n|\033\[K|\033\[[0-9;]*m|[^\r\n\033]+", written):
        if part == "\r":
            at = 0
        elif part == "\n":
            lines.append("")
        elif part == "\033[K":
            lines[-1] = lines[-1][:at]
        elif not part.startswith("\033"):
            lines[-1] = lines[-1][:at] + part + lines[-1][at + len(part) :]
            at += len(part)
            assert len(lines[-1]) < columns or "status" not in lines[-1], "it wraps"
    return [line for line in lines if line]


def test_all_that_is_written_meanwhile_stands_whole_above_it() -> None:
    """Words aside, a warning, an answer in pieces whose line it leaves alone, prints from two threads."""
    got = on_a_terminal("""
from threading import Thread
with working("status"):
    time.sleep(0.1); aside("one"); time.sleep(0.1)
    warnings.warn("two"); time.sleep(0.1)
    for piece in ("th", "re", "e"):
        sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.1)
    print(); time.sleep(0.1)
    click.echo(click.style("four", fg="red"), err=True)
    threads = [Thread(target=lambda n=n: [(sys.stdout.write(f"thread {n} {i}\\n"), time.sleep(0.01)) for i in range(20)]) for n in (1, 2)]
    [t.start() for t in threads]; [t.join() for t in threads]
    sys.stderr.writelines(["five\\n"])
print("six")
""")
    lines = screen(got)
    assert [line for line in lines if "thread" not in line] == ["one", "warning: two", "three", "four", "five", "six"]
    for n in (1, 2):
        assert [line for line in lines if line.startswith(f"thread {n}")] == [f"thread {n} {i}" for i in range(20)]
    assert got.count("\rstatus, 0 s\033[K") >= 4, "it comes back"
    assert "\rstatus" not in got[got.index("th") : got.index("e\r\n")], "not within a line that has no end"


def test_two_works_share_the_line() -> None:
    """One within another, or of two threads: the words of all that goes on, and of what is left."""
    got = on_a_terminal("""
from threading import Thread
def other():
    with working("other"): time.sleep(0.3)
with working("outer"):
    time.sleep(0.1)
    with working("inner"): time.sleep(0.15)
    time.sleep(0.15)
    thread = Thread(target=other); thread.start(); time.sleep(0.2); thread.join()
    time.sleep(0.1)
""")
    shown = re.findall(r"\r([^\r\033]+)\033\[K", got)
    kinds = [re.sub(r", \d s", "", words) for words in shown]
    assert [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before] == [
        "outer", "outer · inner", "outer", "outer · other", "outer",
    ]  # fmt: skip
    assert screen(got) == []


@pytest.mark.parametrize("columns", [1, 5, 20, 60])
def test_it_never_wraps(columns: int) -> None:
    """However narrow the terminal: a line that wraps could not be taken away."""
    got = on_a_terminal("with working('status ' + 'long' * 30): time.sleep(0.2)\nprint('!')", columns)
    shown = re.findall(r"\r([^\r\033]*)\033\[K", got)
    assert shown and all(len(words) < columns for words in shown), shown
    assert screen(got, columns) == ["!"]


def test_nothing_is_shown_where_it_is_no_terminal() -> None:
    """Not a byte, of a program whose standard error is a pipe."""
    code = HEAD + "with working('status'): time.sleep(0.2)\nprint('!')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("!\n", "")


def test_words_are_cut_to_columns() -> None:
    """Wide characters count twice, marks on others not at all, and what moves a terminal's cursor is written as its escape."""
    assert cut("compiling", 9) == "compiling" and cut("compiling", 8) == "compili…"
    assert cut("漢字かな", 8) == "漢字かな" and cut("漢字かな", 7) == "漢字か…" and cut("漢字かな", 6) == "漢字…"
    assert cut("e\u0301e\u0301", 2) == "e\u0301e\u0301"
    assert cut("a\x1b[2Jb\n", 40) == "a\\x1b[2Jb\\n"
    assert cut("x", 0) == ""


def test_a_forked_process_writes_whoever_held_the_line() -> None:
    """The lock that another thread held when a process was forked is not waited for in it."""
    code = HEAD + """
import os
from threading import Thread
from iron_core.cli.status_line import status_line
held = []
def hold():
    with status_line._lock:
        held.append(1)
        time.sleep(0.3)
thread = Thread(target=hold); thread.start()
while not held: time.sleep(0.01)
pid = os.fork()
if not pid:
    start = time.monotonic()
    status_line.given_way(len, "x")
    os._exit(time.monotonic() - start > 0.2)
thread.join()
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0
