"""Programs that run for us: what they say, how long they may take, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from iron_core.processes import Running, TimeLimit, output, run
from iron_core.side_by_side import side_by_side

posix = pytest.mark.skipif(os.name != "posix", reason="groups of processes")


def shell(script: str, **options):
    return run(["sh", "-c", script], os.environ, **options)


def test_a_command_gives_its_status_and_what_it_said_of_errors():
    assert shell("echo out; echo wrong >&2; exit 3") == (3, "wrong\n")


def test_a_log_has_all_that_was_said_behind_what_was_there(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    assert shell("echo out; echo wrong >&2; pwd", log=log, folder=tmp_path) == (0, f"before\nout\nwrong\n{tmp_path}\n")
    assert log.read_text().startswith("before\nout\n")


def test_a_command_that_is_not_there_does_not_start():
    with pytest.raises(FileNotFoundError):
        run(["/no/such/program"], os.environ)


def gone(pid: int) -> bool:
    """Is a process over, or nobody's any more? One that ended and was not waited for yet is."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@posix
@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "])
def test_one_that_takes_too_long_is_ended_with_all_it_started(tmp_path, deaf):
    """Whether it hears the signal or not."""
    with pytest.raises(TimeLimit):
        shell(f"{deaf}sleep 600 & echo $! > child; echo $$ > own; while :; do sleep 1; done", folder=tmp_path, seconds=0.3)
    for name in ("own", "child"):
        pid = int((tmp_path / name).read_text())
        until = time.monotonic() + 10
        while not gone(pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert gone(pid)


@posix
def test_what_runs_elsewhere_can_be_ended():
    """By whoever has the `Running` it was added to; killed where it is seen before `add` has looked whether that was ended."""
    running, codes = Running(), []
    thread = threading.Thread(target=lambda: codes.append(shell("sleep 600", running=running)[0]))
    thread.start()
    while not running._processes:
        time.sleep(0.005)
    running.end()
    thread.join(10)
    assert codes in ([-signal.SIGTERM], [-signal.SIGKILL])


def test_output_is_none_where_there_is_none_to_trust():
    assert output(("sh", "-c", "echo ' 1.2 '; echo no >&2"), os.environ) == "1.2"
    assert output(("sh", "-c", "echo 1.2; exit 1"), os.environ) is None
    assert output(("/no/such/program",), os.environ) is None
    assert output(("sh", "-c", "exec sleep 600"), os.environ, 0.1) is None


@pytest.mark.parametrize("most", [1, 2])
def test_so_many_at_once_and_no_more(most):
    """Of work on several threads."""
    now, seen, lock = [0], [], threading.Lock()

    def item(_):
        with lock:
            now[0] += 1
            seen.append(now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    side_by_side(item, range(6), at_once=most)
    assert max(seen) == most
