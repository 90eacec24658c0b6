"""`python -m bench.timing`: published timings of operators beside the simulator's, and the published changes of whole models."""

from __future__ import annotations

import argparse

from bench import predicted
from iron_core.cli.table import print_json
from iron_sim.timing.table import judged


def main(argv: list[str] | None = None) -> int:
    """Print both tables; 1 where a row whose design is known could not be predicted."""
    parser = argparse.ArgumentParser(prog="bench.timing", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="ROW", help="rows of operators whose names begin so, and no model (default: all)")
    parser.add_argument("--untuned", action="store_true", help="leave out what has to be searched for")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(argv)
    table = judged(options.names)
    if not options.json:
        table.show()
    models = [] if options.names else predicted.changes(not options.untuned)
    if options.json:
        print_json({"operators": table.as_dict(), "models": predicted.plain(models)})
    elif models:
        print()
        predicted.show(models)
    return int(table.failed)


if __name__ == "__main__":
    raise SystemExit(main())
