"""`iron tune OPERATOR`: its settings measured, as a table, CSV or JSON; the fastest kept for the runs to come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from iron_core.aside import aside
from iron_core.backends.measuring import Keeping, Measuring, Timing
from iron_core.cli.operators import built, find, shown
from iron_core.cli.progress import working
from iron_core.cli.table import print_json
from iron_core.declare.profile import Profile
from iron_core.devices import Device
from iron_core.errors import UsageError, printable, sentence
from iron_core.files import writable, write_whole
from iron_core.graph.members import verify
from iron_core.plugins.registry import labelled
from iron_tuner import profiles, report
from iron_tuner.backends import measuring_backend
from iron_tuner.probe import Probe
from iron_tuner.search import EXHAUSTIVE, Found, Search, Tried
from iron_tuner.settings import Settings, probed


def tune_operator(name: str, fields: tuple[str, ...], options: Mapping[str, Any]) -> int:
    """Search, report, keep. The exit status: 0, also where the default stays; 1 where nothing could be measured."""
    for option in ("random_weights", "table", "context"):
        if options[option] is not None:
            raise UsageError(f"--{option.replace('_', '-')} is for a model; {name} is an operator. Legal: leave it out.")
    if options["as_json"] and options["csv_file"] == "-":
        raise UsageError("--csv - and --json are both for standard output. Legal: one of them, or --csv FILE.")
    cls = find(name)
    with labelled(cls, "to make an operator of these fields"):
        op = built(cls, fields)
    backend, dev = measuring_backend(options["backend"], options["dev"])
    if options["csv_file"] not in (None, "-"):
        with written("--csv", options["csv_file"]):
            writable(options["csv_file"])
    if options["folder"]:
        with written("--profile", options["folder"]):
            profiles.opened(options["folder"], dev)
    progress = Progress(title(op))
    probe = probe_of(backend, dev, options, progress)
    settings = Settings(probed(op), dev, backend, members=members(op, options["values"]))
    if not options["as_json"]:
        aside(f"{title(op)} on {backend.name} {dev}: {probe.platform.name}, power mode {probe.platform.mode}; {_count(settings)}")
    with working(progress.words):
        found = Search(settings, probe, exhaustive=options["exhaustive"] or EXHAUSTIVE, seen=progress.seen).run()
    _answer(op, found, probe, options)
    for words in kept(found, backend, dev, options):
        aside(words)
    return 1 if found.default.measured is None else 0


class Progress:
    """What is being measured, how many were, and the best so far."""

    def __init__(self, name: str) -> None:
        self.name, self.count, self.now, self.best = name, 0, "", ""

    def said(self, words: str) -> None:
        self.count += 1
        self.now = words

    def seen(self, best: Tried) -> None:
        if best.measured is not None:
            self.best = f"; best {report.figure(best.measured.t_step_us)} us ({best.variant.label})"

    def words(self) -> str:
        return f"{self.name}: {self.count} measured{self.best}"


def probe_of(backend: Measuring, dev: Device, options: Mapping[str, Any], progress: Progress) -> Probe:
    """A probe as the command line has it."""
    timing = Timing(options["rounds"], options["calls"], options["settle"], options["cutoff"])
    dispatch = options["dispatch"] or ("fused" if dev.full_elf or not dev.is_npu else "separate")
    return Probe(
        backend, dev, timing=timing, repeats=options["repeats"], dispatch=dispatch, remeasure=options["remeasure"], said=progress.said
    )


def title(op: Any) -> str:
    """An operator and the fields that a call gives."""
    return " ".join([type(op.base).__name__, *(f"{name}={value}" for name, value in shown(op).items())])


def members(op: Any, values: tuple[str, ...]) -> dict[str, int]:
    """`--value NAME=N` as the numbers of an operator's members. UsageError for what is no number or comes twice, CallError for a name
    that is none, BoundsError for a number beyond what it counts."""
    found: dict[str, int] = {}
    for text in values:
        name, _, number = text.partition("=")
        try:
            n = int(number)
        except ValueError:
            raise UsageError(f"--value {printable(text, 80)}; legal: NAME=N, a whole number.") from None
        if name in found:
            raise UsageError(f"--value {printable(text, 80)}: {printable(name, 40)} is given twice, {found[name]} before.")
        verify(op, {name: n})
        found[name] = n
    return found


def kept(found: Found, backend: Any, dev: Device, options: Mapping[str, Any]) -> list[str]:
    """Keep what was found faster, by the backend itself where it keeps such things, and in the folder that was asked for; what is
    to be said of it."""
    if found.best is found.default:
        return []
    said = []
    name: str = backend.name
    if isinstance(backend, Keeping):
        profile = Profile()
        profiles.add(profile, found.best.variant, name)
        said.append(f"kept in {backend.keep(profile, dev)}: {name} takes it from now on")
    if options["folder"]:
        with written("--profile", options["folder"]):
            said.append(f"written into {profiles.merged(options['folder'], dev, [found.best.variant], name)}")
    return said


def _count(settings: Settings) -> str:
    if not settings.axes:
        return "nothing to choose"
    return f"{settings.size} combinations of {', '.join(settings.axes)}"


def _answer(op: Any, found: Found, probe: Probe, options: Mapping[str, Any]) -> None:
    """The report, where it was asked for."""
    if options["csv_file"] == "-":
        click.echo(report.as_csv(found), nl=False)
        return
    if options["as_json"]:
        facts = {"operator": title(op), "backend": probe.backend.name, "device": probe.dev.name, "dispatch": probe.dispatch}  # type: ignore[attr-defined]
        profile = Profile()
        profiles.add(profile, found.best.variant, facts["backend"])
        print_json(facts | report.as_dict(found, probe.platform) | {"entry": profile.lines()})
    else:
        report.show(found)
        click.echo()
        click.echo(_conclusion(found))
    if options["csv_file"]:  # last: what was measured is told, whatever becomes of the file
        with written("--csv", options["csv_file"]):
            write_whole(options["csv_file"], report.as_csv(found))


def _conclusion(found: Found) -> str:
    if found.default.measured is None:
        return f"{sentence(found.said)} Nothing was compared."
    how = "every one" if found.exhaustive else "one tunable at a time"
    count = sum(one.measured is not None for one in found.tried)
    tried = f"{count} setting{'s' if count != 1 else ''} measured, {how}"
    if found.refused:
        tried += f"; {len(found.refused)} {'do' if len(found.refused) != 1 else 'does'} not fit"
    if found.said:
        tried += f"; {found.said}"
    if found.best is found.default or found.best.measured is None:
        return f"{tried}. The default stays."
    before, after = found.default.measured.t_step_us, found.best.measured.t_step_us
    gain = found.best.gain_us / before * 100
    accurate = "" if found.best.exact else ", within its gates, not exact"
    return f"{tried}. {report.figure(before)} -> {report.figure(after)} us ({gain:.1f} % less{accurate}): {found.best.variant.label}"


@contextlib.contextmanager
def written(option: str, path: str | Path) -> Iterator[None]:
    """Around writing what an option names. UsageError where it cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{option} {printable(path, 200)}: {error.strerror}. Legal: what can be written to.") from None
