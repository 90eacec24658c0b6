"""Worker processes: started once for a file and a context, stopped (SIGSTOP) whenever it is another's turn."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, TextIO

from bench.engines import WORKERS, Engine, Unavailable

_TICKS = os.sysconf("SC_CLK_TCK")


def busy_seconds() -> float:
    """CPU seconds this machine has spent on anything since it started, what its host took included; 0 where unknown."""
    try:
        with open("/proc/stat", encoding="utf-8", errors="replace") as file:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq + steal) / _TICKS


def own_bytes(pid: int) -> int:
    """Memory of a process's own now: RssAnon, RssShmem and VmSwap; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(("RssAnon:", "RssShmem:", "VmSwap:")))
    except OSError:
        return 0


class Worker:
    """An engine with a model loaded. `order()` is its turn: it runs, alone of all workers, and stops again."""

    def __init__(self, engine: Engine, python: str, checkpoint: Path, settings: dict[str, Any], log: TextIO) -> None:
        self.engine = engine
        given = json.dumps({"checkpoint": str(checkpoint)} | settings)
        self._process = subprocess.Popen(
            [python, str(WORKERS / engine.worker), given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        self.version = self._answer()["version"]
        self._signal(signal.SIGSTOP)

    def order(self, **order: Any) -> dict[str, Any]:
        """Do one thing. With the answer: `others`, CPUs that something else than this worker was using meanwhile."""
        assert self._process.stdin is not None
        self._signal(signal.SIGCONT)
        before, start = busy_seconds(), time.perf_counter()
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Unavailable(self._end()) from None
        own = self._cpu()
        found = self._answer()
        wall = time.perf_counter() - start
        found["others"] = max(0.0, busy_seconds() - before - (self._cpu() - own)) / wall if wall > 0.2 else None
        self._signal(signal.SIGSTOP)
        return found

    def close(self) -> None:
        """End the process."""
        self._signal(signal.SIGCONT)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unavailable(self._end())
        found = json.loads(line)
        if "failed" in found:
            raise Unavailable(found["failed"])
        return dict(found)

    def _cpu(self) -> float:
        try:
            with open(f"/proc/{self._process.pid}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS
        except OSError:
            return 0.0

    def _end(self) -> str:
        return f"it ended with status {self._process.wait()}; its last words are in the log"

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)


class Ran:
    """A program run to its end, watched from outside: seconds, CPU seconds with its children's, `memory`, the most of its own in bytes."""

    def __init__(self, argv: list[str], env: dict[str, str] | None = None) -> None:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {})
        )
        self.memory = 0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            self.memory = max(self.memory, own_bytes(process.pid))
            time.sleep(0.003)
        self.wall = time.perf_counter() - start
        self.cpu = usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stdout is not None and process.stderr is not None
        self.out, self.err = process.stdout.read(), process.stderr.read()
        if process.returncode:
            last = (self.err.strip() or "no output").splitlines()[-1]
            raise Unavailable(f"status {process.returncode}: {last}")


def iron_run(*argv: str) -> list[str]:
    """The command line of `iron-run llama`."""
    code = "import sys, _iron_start; sys.argv[0] = 'iron-run'; _iron_start.iron_run()"
    return [sys.executable, "-c", code, "llama", *argv]
