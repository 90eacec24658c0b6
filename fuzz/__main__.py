"""`python -m fuzz [--seconds N | --cases N] [--seed S] [TARGET...]`: run targets, each in a process of its own, and say how many
cases held.

Case i of a target at a seed is always the same: `--only I` runs it alone, and `--keep FOLDER` leaves its file there.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

#: What one case may take: seconds of CPU, and MiB of address space beyond what the process begins with.
CPU_SECONDS, MEMORY = 10.0, 1024
#: Seconds that cases which are counted may take in all.
FOREVER = 24 * 3600.0


def case(target: str, seed: int, number: int, folder: Path) -> str:
    """Run one case; how it ended. Fault, or any other exception, where the rule is broken."""
    from fuzz.mutation import Mutator
    from fuzz.rule import emptied
    from fuzz.targets import TARGETS

    return TARGETS[target](Mutator(random.Random(f"{seed} {target} {number}")), emptied(folder))


def work(target: str, seed: int, seconds: float, first: int, cases: float, memory: int, only: bool, keep: str | None) -> int:
    """Run cases until the time is up, or up to number `cases`; a line on standard output for each fault, then the counts.

    Standard error must stay empty. A case that takes three times its seconds ends the process.
    """
    from fuzz.rule import Fault

    held = _limited(memory)
    stderr, out = os.dup(2), os.fdopen(os.dup(1), "w", buffering=1)
    noise = tempfile.TemporaryFile()
    os.dup2(noise.fileno(), 2)
    ends: dict[str, int] = {}
    slowest = (0.0, -1)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        os.environ["NPU_CACHE_HOME"] = scratch + "/home"
        folder = Path(keep) if keep else Path(scratch) / "case"
        folder.mkdir(parents=True, exist_ok=True)
        end, number = time.monotonic() + seconds, first
        while time.monotonic() < end and number < cases:
            out.write(f"at {number}\n")
            before = time.process_time()
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_PROF, 3 * CPU_SECONDS)
            try:
                how = case(target, seed, number, folder)
                if os.fstat(noise.fileno()).st_size:
                    noise.seek(0)
                    said = noise.read(400)
                    raise Fault(f"written to standard error: {said!r}")
            except (Exception, SystemExit) as error:
                how = "FAULT"
                what = str(error) if isinstance(error, Fault) else "".join(traceback.format_exception_only(error)).strip()
                out.write(f"fault {number} {what[:400]!r}\n")
                if only:
                    os.dup2(stderr, 2)
                    traceback.print_exc()
            noise.seek(0)
            noise.truncate()
            ends[how] = ends.get(how, 0) + 1
            took = time.process_time() - before
            slowest = max(slowest, (took, number))
            if took > CPU_SECONDS:
                out.write(f"fault {number} '{took:.1f} s of CPU'\n")
            number += 1
            if only:
                break
    grown = f", {_resident() - held >> 20} MiB more at most" if held else ""
    out.write(f"done {number - first} {ends} slowest {slowest[0]:.2f} s (case {slowest[1]}){grown}\n")
    return 0


def _resident() -> int:
    """Bytes of memory that the process has had at most."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _limited(memory: int) -> int:
    """Have the process take no more than this beyond what it begins with, which is given back; 0 where that cannot be."""
    try:
        import resource
    except ImportError:
        return 0
    from fuzz import targets  # noqa: F401  # what is imported from here on is part of what the process begins with
    from iron_gemma3 import model  # noqa: F401
    from iron_lm import loading  # noqa: F401
    from iron_lm.text import pieces  # noqa: F401

    import sentencepiece  # noqa: F401  # isort: skip
    import tokenizers  # noqa: F401  # isort: skip

    with open("/proc/self/statm", encoding="utf-8") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (memory << 20), held + (memory << 20)))
    return _resident()


def watched(target: str, seed: int, seconds: float, cases: float, memory: int) -> tuple[str, list[str]]:
    """Run a target in a process, and another one from the next case on where that dies; (its counts, its faults)."""
    faults: list[str] = []
    counts, end, first = "", time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0 and first < cases:
        line = [sys.executable, "-m", "fuzz", "--work", target, "--seed", str(seed), "--seconds", str(left), "--first", str(first)]
        line += ["--memory", str(memory), *(["--cases", str(cases)] if cases < math.inf else [])]
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
        try:
            said, errors = process.communicate(timeout=left + 120)
        except subprocess.TimeoutExpired:
            process.kill()
            said, errors = process.communicate()
        lines = said.splitlines()
        faults += [text.removeprefix("fault ") for text in lines if text.startswith("fault ")]
        last = next((int(text.split()[1]) for text in reversed(lines) if text.startswith("at ")), None)
        if lines and lines[-1].startswith("done "):
            counts += lines[-1].removeprefix("done ") + "; "
            break
        if last is None:
            faults.append(f"{first} the process did not start: {errors[-400:]!r}")
            break
        faults.append(f"{last} the process died of signal {-process.returncode}: {errors[-200:]!r}")
        counts += f"{last - first + 1} cases up to a death; "
        first = last + 1
    return counts, faults


def main() -> int:
    from fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__.split("\n\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=20, metavar="N", help="for each target (20)")
    parser.add_argument("--cases", type=int, default=None, metavar="N", help="of each target, however long they take")
    parser.add_argument("--memory", type=int, default=MEMORY, metavar="MIB", help=f"that a target may take ({MEMORY})")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="default: the time")
    parser.add_argument("--only", type=int, metavar="I", help="one case of one target, with its traceback")
    parser.add_argument("--keep", metavar="FOLDER", help="with --only: where its file is written")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if given.seed is None else given.seed
    cases = math.inf if given.cases is None else given.cases
    if given.work or given.only is not None:
        only = given.only is not None
        target, first = given.work or given.targets[0], given.only if only else given.first
        return work(target, seed, given.seconds, first, math.inf if only else cases, given.memory, only, given.keep)
    unknown = [name for name in given.targets if name not in TARGETS]
    if unknown:
        parser.error(f"no target {unknown[0]}; there are {', '.join(TARGETS)}")
    failed = False
    print(f"seed {seed}")
    for name in given.targets or TARGETS:
        counts, faults = watched(name, seed, given.seconds if given.cases is None else FOREVER, cases, given.memory)
        print(f"{name}: {counts}{len(faults)} faults", flush=True)
        for fault in faults[:20]:
            print(f"  python -m fuzz {name} --seed {seed} --only {fault.partition(' ')[0]}: {fault.partition(' ')[2]}", flush=True)
        failed = failed or bool(faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
