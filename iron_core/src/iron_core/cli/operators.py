"""`iron operators show` and `iron operators run`: one operator looked at, and tried on drawn inputs."""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import statistics
import time
from typing import Any

import click

from iron_core.cli.files import in_file, member
from iron_core.cli.progress import working
from iron_core.cli.table import print_json, print_table
from iron_core.cli.takers import printing, takers
from iron_core.declare.identity import label
from iron_core.errors import CallError, IronError, UsageError, printable
from iron_core.plugins.registry import labelled, registry

#: Calls are timed for about this long, at least three of them.
SECONDS = 0.3


def find(name: str) -> Any:
    """The operator class of `NAME`, `distribution:NAME` or `file.py:CLASS`."""
    place = in_file(name)
    found = member(*place) if place else registry().load("operators", name)
    from iron_core.declare.operator import Operator

    if not (isinstance(found, type) and issubclass(found, Operator)):
        raise UsageError(f"{name} is {found!r}, no Operator class.")
    return found


# -- show ------------------------------------------------------------------------------------------


def show(
    name: str,
    fields: tuple[str, ...] = (),
    *,
    dev: str | None = None,
    page: str | None = None,
    opened: bool = False,
    mlir: bool = False,
    as_json: bool,
) -> None:
    """Print an operator's declaration, who takes it, and what it is on a device's array; or draw that, or print its MLIR.
    page: the file, "" for one of its name."""
    cls = find(name)
    if page is not None or opened:
        _draw(cls, fields, dev, page, opened)
        return
    if mlir:
        _print(cls, fields, dev, as_json)
        return
    facts = describe(cls)
    if cls.binary is None:
        given = None
        if fields:
            with labelled(cls, "to make an operator of these fields"):
                given = built(cls, fields)
        facts["takers"] = takers(cls, given, dev)
    if dev is not None:
        taken = [row for row in facts.get("takers", ()) if row["device"] == dev]
        placed = _placed(cls, fields, dev)
        if not taken or any(row["takes"] for row in taken if row["backend"] != "reference"):
            facts["array"] = placed.explain(dev)
    if as_json:
        print_json(facts)
        return
    click.echo(f"{facts['name']}  ({facts['module']})\n")
    click.echo(inspect.getdoc(cls) or "")
    for part in ("fields", "operands", "extents"):
        if facts[part]:
            click.echo()
            headers = list(facts[part][0])
            print_table((part, *headers[1:]), [[row[h] for h in headers] for row in facts[part]])
    click.echo(f"\nper-call numbers: {', '.join(facts['numbers']) or 'none'}")
    alone = "none; it runs by its reference" if cls.binary is None else "none; it is a binary, which an NPU runs"
    click.echo(f"lowerings: {', '.join(facts['lowerings']) or alone}")
    if "takers" in facts:
        click.echo()
        names = ("backend", "device", "takes", *(() if fields else ("case",)), "how")
        rows = [[{True: "yes", False: "no"}.get(row[name], row[name]) for name in names] for row in facts["takers"]]
        print_table((*names[:2], "takes it", *names[3:-1], "how, or why not"), rows, fit=("case",))
    if "array" in facts:
        click.echo(f"\n{facts['array']}")


def _placed(cls: Any, fields: tuple[str, ...], dev: str | None) -> Any:
    """The operator of these fields; without any, of its first test case that has an array there."""
    from iron_core.devices import meant

    dev = meant(dev, f"{cls.__name__}'s array").name
    with labelled(cls, "to make an operator of these fields"):
        if fields:
            return built(cls, fields)
        ops = [cls(**case.fields) for case in cls.test.cases(cls)]
    for op in ops:
        with contextlib.suppress(IronError):
            op.explain(dev)
            return op
    return ops[0] if ops else built(cls, fields)


def _print(cls: Any, fields: tuple[str, ...], dev: str | None, as_json: bool) -> None:
    from iron_core.devices import current_device

    backend = printing(dev)
    current = current_device()
    chosen = dev or (current.name if current is not None and current.is_npu else backend.devices()[0])
    op = _placed(cls, fields, chosen)
    text = backend.printed(op, chosen)
    if as_json:
        print_json({"operator": cls.__name__, "fields": shown(op), "device": chosen, "mlir": text})
    else:
        click.echo(text, nl=not text.endswith("\n"))


def _draw(cls: Any, fields: tuple[str, ...], dev: str | None, page: str | None, opened: bool) -> None:
    from iron_core.backends.pricing import pricing_backend
    from iron_core.cli.picture import put
    from iron_core.devices import meant
    from iron_core.visualize import operator_html
    from iron_core.visualize.priced import operator_us

    chosen = meant(dev, f"{cls.__name__}'s array").name
    op = _placed(cls, fields, chosen)
    backend = pricing_backend(chosen)
    us = None if backend is None else operator_us(op, backend, chosen)
    put(operator_html(op, chosen, us=us), page or (None if opened else f"{cls.__name__}.html"), opened=opened)


def describe(cls: Any) -> dict[str, Any]:
    """A class's declaration as plain data."""
    from iron_core.declare.field import Field
    from iron_core.declare.formats import as_format

    ending = f".{cls.__module__.partition('.')[0]}.{cls.__qualname__}"
    lowered = (n.removesuffix(ending) for n in registry().names("lowerings") if n.endswith(ending))
    return {
        "name": cls.__name__,
        "module": cls.__module__,
        "doc": inspect.getdoc(cls) or "",
        "fields": [{"name": n, "kind": f.kind, "default": _default(f)} for n, f in cls.fields.items()],
        "operands": [
            {
                "name": n,
                "role": o.role,
                "dims": ", ".join(_dim(d) for d in o.dims),
                "dtype": o.dtype.name if isinstance(o.dtype, Field) else as_format(o.dtype).name,
                "when": o.when.name if o.when is not None else "",
            }
            for n, o in cls.operands.items()
        ],
        "extents": [{"name": n, "bounds": e.field} for n, e in cls.extents.items()],
        "numbers": list(cls.scratchpads),
        "lowerings": sorted(lowered),
    }


def _default(field: Any) -> str:
    if field.required:
        return "required"
    if field.computed:
        return "by rule"
    return str(getattr(field.default, "__name__", None) or field.default)


def _dim(dim: Any) -> str:
    from iron_core.declare.operand import OptionalDim, Select

    if isinstance(dim, OptionalDim):
        return f"[{dim.field.name}]"
    if isinstance(dim, Select):
        first, second = (", ".join(_dim(d) for d in dims) for dims in (dim.when_true, dim.when_false))
        return f"({first}) if {dim.flag.name} else ({second})"
    return str(getattr(dim, "name", dim))


# -- run -------------------------------------------------------------------------------------------


def run(
    name: str, fields: tuple[str, ...], *, backends: list[str] | None, dev: str | None, seed: int, as_json: bool, timed: bool = False
) -> int:
    """Compare backends on one operator; 1 if one is out of the contract's tolerance. timed: a step's time as the backend measures it."""
    from iron_core.trials.trial import draw

    cls = find(name)
    with labelled(cls, "to make an operator of these fields and its inputs"):
        op = built(cls, fields)
    drawn = draw(op, seed=seed)
    rows = []
    for chosen in _choices(backends, dev):
        with working(f"{label(op)} on {chosen.backend.name}"):
            rows.append(_row(drawn, chosen))
            if timed:
                rows[-1]["seconds"] = _measured(op, chosen)
    if as_json:
        print_json({"operator": cls.__name__, "fields": shown(op), "seed": seed, "rows": rows})
    else:
        click.echo(f"{cls.__name__} {' '.join(f'{k}={v}' for k, v in shown(op).items())}\n")
        headers = ("backend", "device", "columns", "steps", "max |err|", "gate", "time", "")
        print_table(headers, [_cells(row) for row in rows])
        for row in rows:
            if row["failure"]:
                click.echo(f"\n{row['backend']}: {row['failure']}")
    return 1 if any(row["failure"] for row in rows) else 0


def built(cls: Any, fields: tuple[str, ...]) -> Any:
    """The operator of these fields; of its first test case if there are none."""
    given: dict[str, Any] = {}
    for text in fields:
        name, value = _field(cls, text)
        if name in given:
            raise UsageError(f"{printable(repr(text), 80)}: {name} is given twice, {given[name]!r} before.")
        given[name] = value
    if not given:
        case = next(iter(cls.test.cases(cls)), None)
        given = dict(case.fields) if case is not None else {}
    return cls(**given)


def _field(cls: Any, text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        known = ", ".join(cls.fields) or "none"
        raise UsageError(f"{printable(repr(text), 80)}: a field is NAME=VALUE. Fields of {cls.__name__}: {known}.")
    if name not in cls.fields:
        raise CallError(f"{cls.__name__} has no field {printable(name, 40)}. Its fields: {', '.join(cls.fields) or 'none'}.")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return name, words[value.lower()]
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def shown(op: Any) -> dict[str, str]:
    """The fields that a reader would give: those not left at their default."""
    shown = {}
    for name, field in op.fields.items():
        value = getattr(op, name)
        if value is not None and (field.required or name in op._given or field.kind == "dtype"):
            shown[name] = str(getattr(value, "name", value))
    return shown


def _choices(names: list[str] | None, dev: str | None) -> list[Any]:
    from iron_core.backends.choose import choose, get, takes
    from iron_core.devices import device

    if names is None:
        chosen = choose().backend.name
        names = list(dict.fromkeys(("reference", chosen)))
    if dev is not None:
        found = device(dev)
        taking = [name for name in names if takes(get(name), found)]
        # A CPU backend beside one that takes the device is there to be compared with.
        return [choose(name, dev if name in taking or not taking else None) for name in names]
    return [choose(name) for name in names]


def _row(drawn: Any, chosen: Any) -> dict[str, Any]:
    from iron_core.trials.trial import tried

    trial, image = tried(drawn, chosen)
    return {
        "backend": trial.backend,
        "device": trial.device,
        "columns": trial.columns,
        "steps": 1,
        "max_error": trial.error,
        "gate": trial.gate,
        "seconds": None if trial.verdict == "not run" else _seconds(image, drawn.given),
        "how": trial.how,
        "failure": trial.says,
    }


def _seconds(image: Any, given: list[Any]) -> float:
    """The median of repeated calls."""
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < SECONDS:
        start = time.perf_counter()
        image(*given)
        taken.append(time.perf_counter() - start)
        if len(taken) >= 3 and taken[-1] > SECONDS:
            break
    return statistics.median(taken)


def _measured(op: Any, chosen: Any) -> float | None:
    """Seconds of a step, as the backend measures run lists: of nine, less that of one. None of a backend that measures none."""
    from iron_core.backends.measuring import Measuring, Run, RunList, Timing
    from iron_core.devices import device

    if not isinstance(chosen.backend, Measuring):
        return None
    dev, more = device(chosen.dev), 8
    dispatch = "separate" if dev.is_npu and not dev.full_elf else "fused"
    lists = [RunList(op.base.__class__.__name__, (Run(op),) * n, dispatch=dispatch) for n in (1, 1 + more)]
    one, many = chosen.backend.measure(lists, dev, Timing(rounds=3, calls=10, cutoff=math.inf))
    return max(many.us - one.us, 0.0) / more * 1e-6


def _cells(row: dict[str, Any]) -> list[str]:
    def dash(value: Any) -> str:
        return "-" if value is None else str(value)

    error = "-" if row["max_error"] is None else f"{row['max_error']:.3g}"
    return [
        row["backend"], row["device"], dash(row["columns"]), dash(row["steps"]), error, row["gate"],
        _duration(row["seconds"]), row["how"],
    ]  # fmt: skip


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
