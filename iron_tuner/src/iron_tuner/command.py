"""`iron tune`: an operator at every setting it has, or a model's every design, timed; the fastest kept."""

from __future__ import annotations

import math
from typing import Any

import click

from iron_core.aside import aside
from iron_core.cli import streams

_LATE = dict(ignore_unknown_options=True)


def main(argv: list[str]) -> int:
    """Find the fastest settings of an operator or model.

    argv: the line behind the command; the exit status. IronError and click's errors come through to the caller.
    """
    with _tune.make_context("iron tune", list(argv)) as context:
        try:
            return int(_tune.invoke(context) or 0)
        except KeyboardInterrupt:
            aside("stopped; what was measured is kept, and the next `iron tune` goes on from there.")
            raise


def _reserving(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Standard output is the answer's alone from here on."""
    if value:
        streams.reserve()
    return value


def _number(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """No NaN, which no range excludes."""
    if math.isnan(value):
        raise click.BadParameter("nan is no number; legal: 1 or more.")
    return value


@click.command("iron tune", context_settings=_LATE)
@click.argument("what", metavar="OPERATOR|MODEL")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[FIELD=VALUE]...|[CHECKPOINT] [MODEL'S OPTIONS]")
@click.option("--value", "values", multiple=True, metavar="NAME=N", help="A number that calls give: a bound, an offset. May be repeated.")
@click.option("--dev", metavar="NAME", help="The device. Default: the backend's first.")
@click.option("--backend", metavar="NAME", help="Default: $IRON_BACKEND, else the first that measures on the device.")
@click.option("--dispatch", type=click.Choice(["fused", "separate"]), help="Packaging. Default: fused where the device has full ELFs.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=8, show_default=True, help="Turns that every setting has.")
@click.option("--calls", type=click.IntRange(1, 1_000_000), default=50, show_default=True,
    help="Calls of a turn at most; their median counts.")
@click.option("--settle", type=click.IntRange(min=1), default=2, show_default=True, help="Turns before a slow setting is left.")
@click.option("--cutoff", type=click.FloatRange(min=1), default=1.5, callback=_number, show_default=True,
    help="How many times the fastest is slow.")
@click.option("--repeats", type=click.IntRange(2, 1000), default=9, show_default=True, help="Runs whose time less one's is a step's.")
@click.option("--exhaustive", type=click.IntRange(min=1), metavar="N", help="Settings up to which all are tried. Default: 64.")
@click.option("--remeasure", is_flag=True, help="Measure again what was measured before.")
@click.option("--profile", "folder", metavar="FOLDER", help="Write the fastest settings into FOLDER/<device>.json.")
@click.option("--table", metavar="FILE", help="Of a model: the cost table to write or add to. Default: costs_<device>.json.")
@click.option("--csv", "csv_file", metavar="FILE", help="Write every setting as CSV; - for standard output.")
@click.option("--json", "as_json", is_flag=True, callback=_reserving, help="JSON instead of a table.")
@click.option("--random-weights", type=click.IntRange(min=0), metavar="SEED", is_flag=False, flag_value=0,
    help="Of a model: weights drawn at SEED (0), no checkpoint; times follow shapes.")
@click.option("--context", type=click.IntRange(min=1), metavar="N", help="Of a model: price contexts up to N. Default: what caches hold.")
@click.option("--verbose", is_flag=True, expose_value=False, help="Show the traceback of an error.")  # fmt: skip
def _tune(what: str, rest: tuple[str, ...], **options: Any) -> int:
    """Time an operator at every setting that its declaration allows, on any backend that measures, and say which is the fastest.

    A setting is taken only if it writes the same bits as the default, or is within the gates of both, and is faster beyond the noise.
    Tunables among the fields are held. What is measured is kept: a run that was stopped goes on where it was.

    Of a MODEL, every design of its graph is timed, and what configurations take: its cost table is written, which every model takes as
    --cost-table.
    """
    from iron_core.cli.files import in_file
    from iron_core.plugins.registry import registry

    known = registry()
    if in_file(what) is None and what not in known.names("operators") and what in known.names("models"):
        from iron_tuner.tune_model import tune_model

        return tune_model(what, rest, options)
    from iron_tuner.tune_operator import tune_operator

    return tune_operator(what, rest, options)
