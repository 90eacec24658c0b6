"""`iron sim`: operators' test cases on simulated arrays, as a table."""

from __future__ import annotations

import argparse
from typing import Any

import attrs

from iron_core.array.build import has_array
from iron_core.cli import streams
from iron_core.cli.operators import find
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.declare.cases import operators
from iron_core.devices import device
from iron_core.errors import IronError, UnsupportedError
from iron_core.plugins.registry import labelled
from iron_sim.catalog import Outcome, outcomes
from iron_sim.refusals import by_rule, rule
from iron_sim.timing.cases import Timing, timings

TIMES = ("operator", "case", "device", "columns", "cores", "us", "load us", "busiest")
HEADERS = ("operator", "case", "device", "columns", "cores", "tiles", "differ", "max |err|", "of gate", "")


def main(argv: list[str]) -> int:
    """Run operators' test cases on simulated NPU arrays.

    argv: the line behind the command. Exit status 1 if a case is not equal to its tile references or out of its gate, or if there was
    none to simulate.
    """
    parser = argparse.ArgumentParser(prog="iron sim", description="Operators' test cases on simulated NPU arrays.")
    parser.add_argument("names", nargs="*", metavar="OPERATOR", help="operators (all that declare an array, if none)")
    parser.add_argument("--dev", default="npu1,npu2", help="devices, comma-separated (default: npu1,npu2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--extensive", action="store_true", help="the cases beyond the default suite too: every count of columns")
    parser.add_argument("--time", action="store_true", help="how long they take on the clock, in place of what they compute")
    parser.add_argument("--refused", action="store_true", help="list the cases that no array takes too, each with its reason")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args(argv)
    if args.json:
        streams.reserve()
    classes = list(map(find, args.names)) or [cls for cls in operators() if has_array(cls)]
    devices = args.dev.split(",")
    for name in devices:
        if device(name).core is None:
            raise UnsupportedError(f"dev={name!r} has no array to simulate. Legal: npu1, npu2, and others of `iron devices list` with one.")
    if args.time:
        return _timed(classes, devices, args.extensive, args.json)
    found: list[Outcome] = []
    with working("simulating"):
        for cls in classes:
            try:
                with labelled(cls, "in its test cases"):
                    found.extend(outcomes([cls], devices, args.seed, args.extensive))
            except IronError as error:
                found.append(Outcome(cls.__name__, "", args.dev, failure=str(error)))
    ran = [one for one in found if not one.refused]
    refusals = by_rule(one.refused for one in found if one.refused)
    if args.json:
        print_json({"seed": args.seed, "rows": [attrs.asdict(one) for one in found], "refusals": refusals})
    else:
        if ran:
            print_table(HEADERS, [_cells(one) for one in ran], fit=("tiles", "columns", "case"))
        if refusals:
            print()
            rows = [[str(count), _whose(found, said), said] for said, count in refusals.items()]
            print_table(("refused", "of", "by the rule"), rows, fit=("of",))
        if refusals and args.refused:
            print()
            rows = [[one.operator, one.case, one.dev, one.refused] for one in found if one.refused]
            print_table(("operator", "case", "device", "refused"), rows, fit=("case",))
        print(f"\n{len(ran)} simulated, {len(found) - len(ran)} refused, {sum(bool(one.failure) for one in ran)} failed")
        for one in ran:
            if one.failure:
                print(f"{one.operator} {one.case} on {one.dev}: {one.failure}")
    return 1 if not ran or any(one.failure for one in ran) else 0


def _whose(found: list[Outcome], said: str) -> str:
    """The operators and devices that a rule refused."""
    of = [one for one in found if one.refused and rule(one.refused) == said]
    names = dict.fromkeys(one.operator for one in of)
    return f"{', '.join(list(names)[:3])}{' ...' if len(names) > 3 else ''} on {', '.join(sorted({one.dev for one in of}))}"


def _timed(classes: list[Any], devices: list[str], extensive: bool, as_json: bool) -> int:
    """Print cases with their times; 1 if there was none."""
    with working("simulating"):
        found = list(timings(classes, devices, extensive))
    ran = [one for one in found if not one.refused]
    if as_json:
        print_json({"rows": [attrs.asdict(one) for one in found]})
    else:
        print_table(TIMES, [_time(one) for one in ran], fit=("case",))
        print(f"\n{len(ran)} simulated, {len(found) - len(ran)} refused")
    return int(not ran)


def _time(one: Timing) -> list[str]:
    busiest = f"{one.busiest}, {one.share:.0%}"
    return [one.operator, one.case, one.dev, str(one.columns), str(one.cores), f"{one.us:.4g}", f"{one.load_us:.4g}", busiest]


def _cells(one: Outcome) -> list[str]:
    state = "FAILED" if one.failure else f"{one.seconds:.2f} s"
    return [
        one.operator, one.case, one.dev, str(one.columns), str(one.cores), one.tiles, f"{one.bits} of {one.compared}",
        f"{one.error:.3g}", f"{one.ratio:.2f}", state,
    ]  # fmt: skip
