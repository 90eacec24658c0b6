"""What `iron cache list|clean|path` do."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Any

import click

from iron_core.cache import eviction
from iron_core.cache.eviction import Stored
from iron_core.cache.home import home, refusal, size_of
from iron_core.cache.keylock import sweep
from iron_core.cli.table import print_json, print_table
from iron_core.errors import UsageError, printable

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def path(*, as_json: bool) -> None:
    """The folder that entries are in."""
    folder = str(home() / "iron")
    if as_json:
        print_json({"path": folder})
    else:
        click.echo(printable(folder))


def entries(*, as_json: bool) -> None:
    """Every entry, the one used last first, and their sum."""
    found = eviction.stored(home())
    if as_json:
        print_json([_facts(one) for one in found])
        return
    rows = [
        (o.backend, o.about.kind, _bytes(o.size), _moment(o.used), "in use" if o.in_use else "", printable(o.about.of), o.key)
        for o in found
    ]
    print_table(("backend", "kind", "size", "last used", "", "of", "key"), rows)
    click.echo(f"{_count(len(found))}, {_bytes(sum(one.size for one in found))}, in {printable(home() / 'iron')}")


def clean(*, older_than: str | None, limit: str | None, as_json: bool) -> None:
    """Remove entries: all of them, those not used for a time, or those used least recently, down to a size."""
    age = _age(older_than) if older_than is not None else None
    most = size_of(limit, "--limit") if limit is not None else None
    root = home()
    before = time.time() - age if age is not None else None
    found = eviction.stored(root)
    left = sum(one.size for one in found)
    removed: list[Stored] = []
    kept: list[Stored] = []
    for one in reversed(found):
        wanted = (before is None and most is None) or (before is not None and one.used < before) or (most is not None and left > most)
        if not wanted:
            continue
        try:
            gone = eviction.evict(one.path)
        except OSError as error:
            raise refusal(root, error) from None
        if gone:
            removed.append(one)
            left -= one.size
        else:
            kept.append(one)
    for folder in {one.path.parent for one in found}:
        sweep(folder)
    if as_json:
        print_json({"removed": [_facts(one) for one in removed], "in_use": [_facts(one) for one in kept], "bytes_left": left})
        return
    said = f"removed {_count(len(removed))}, {_bytes(sum(one.size for one in removed))}; {_bytes(left)} left"
    click.echo(said + (f", {_count(len(kept))} of it in use" if kept else ""))


def _facts(one: Stored) -> dict[str, Any]:
    return {
        "backend": one.backend,
        "kind": one.about.kind,
        "of": one.about.of,
        "key": one.key,
        "bytes": one.size,
        "last_used": datetime.fromtimestamp(one.used).astimezone().isoformat(timespec="seconds"),
        "in_use": one.in_use,
        "path": str(one.path),
    }


def _count(n: int) -> str:
    return f"{n} entr{'y' if n == 1 else 'ies'}"


def _bytes(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} B"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def _age(text: str) -> float:
    """Seconds of `30d`; UsageError for anything else."""
    found = re.fullmatch(r"([0-9]{1,9})([smhdw])", text.strip(), re.ASCII)
    if found is None:
        raise UsageError(f"--older-than={printable(text)}; legal: a number with s, m, h, d or w (seconds to weeks), as in 30d.")
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]]).total_seconds()
