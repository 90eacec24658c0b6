"""What a search found, as a table for people, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
from typing import Any

from iron_core.backends.measuring import Platform
from iron_core.cli.table import print_table
from iron_tuner.search import Found, Tried


def figure(us: float | None) -> str:
    """Microseconds, to a hundredth where there are few."""
    if us is None:
        return "-"
    return f"{us:.2f}" if abs(us) < 100 else f"{us:.1f}"


def words(found: Found, one: Tried) -> str:
    """What is to be said of a setting: the default, the best, why it may not be taken."""
    said = ["default"] if one is found.default else []
    said += ["best"] if one is found.best else []
    return ", ".join([*said, *([one.why] if one.why else [])])


def show(found: Found) -> None:
    """The table: settings that were measured, the fastest first."""
    names = list(found.default.variant.tunables)
    rows = []
    for one in found.tried:
        measured = one.measured
        own = [str(one.variant.tunables.get(name, "")) for name in names]
        if measured is None:
            rows.append([*own, "-", "-", "-", "-", "-", words(found, one)])
            continue
        judged = "exact" if one.exact else "within gates" if one.accurate else "no"
        times = [figure(measured.t_step_us), figure(measured.noise_us), figure(measured.alone_us), figure(measured.gain_us)]
        rows.append([*own, *times, judged, words(found, one)])
    print_table((*names, "us", "+-", "alone us", "gain us", "accurate", ""), rows)


def as_csv(found: Found) -> str:
    """A line for each setting, those that do not fit among them."""
    names = list(found.default.variant.tunables)
    text = io.StringIO()
    columns = ("t_step_us", "noise_us", "alone_us", "gain_us", "gain_noise_us")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *columns, "exact", "accurate", "faster", "said"])
    for one in found.tried:
        own = [one.variant.tunables.get(name, "") for name in names]
        figures = [getattr(one.measured, name) if one.measured is not None else "" for name in columns]
        writer.writerow([*own, *figures, one.exact, one.accurate, one.faster, words(found, one)])
    for variant, why in found.refused:
        writer.writerow([*(variant.tunables.get(name, "") for name in names), *[""] * len(columns), "", "", "", f"does not fit: {why}"])
    return text.getvalue()


def as_dict(found: Found, platform: Platform) -> dict[str, Any]:
    """All of it, as JSON has it."""
    return {
        "platform": {"name": platform.name, "mode": platform.mode},
        "combinations": found.combinations,
        "exhaustive": found.exhaustive,
        "said": found.said,
        "default": found.default.as_dict(),
        "best": found.best.as_dict(),
        "settings": [one.as_dict() for one in found.tried],
        "refused": [{"tunables": dict(variant.tunables), "why": why} for variant, why in found.refused],
    }
