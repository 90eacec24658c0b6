"""The table: Markdown that reads as it stands."""

from __future__ import annotations

from statistics import median

from bench.results import Result

#: From here on the machine was not quiet: CPUs that others used, on average over a measurement.
BUSY = 0.1


def lines(results: list[Result]) -> list[str]:
    """A line per row and engine: median, minimum and maximum, CPU beside wall seconds, Iron's ratio, then the goals."""
    head = ("what", "engine", "median", "min", "max", "CPU / wall s", "Iron's ratio", "read", "goal", "")
    table: list[tuple[str, ...]] = [head]
    for result in results:
        title = f"{result.row.title} ({result.row.unit})"
        for name, samples in result.engines.items():
            if not samples.values:
                continue
            ours = name == "iron"
            ratio = None if ours else result.ratio(name)
            table.append(
                (
                    title,
                    name + ("*" if samples.others and median(samples.others) > BUSY else ""),
                    *(_number(x) for x in (samples.median, min(samples.values), max(samples.values))),
                    f"{median(samples.cpu):.2f} / {median(samples.wall):.2f}",
                    f"{ratio[0]:.2f} ({ratio[1]:.2f} to {ratio[2]:.2f})" if ratio else "",
                    _read(result) if ours else "",
                    result.row.goal.text(result.row.unit) if ours else "",
                    result.verdict if ours else "",
                )
            )
            title = ""
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    rule = tuple("-" * width for width in widths)
    text = ["| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in [head, rule, *table[1:]]]
    if any(name.endswith("*") for _, name, *_ in table):
        text += ["", f"\\* others used more than {BUSY:g} CPUs while this was measured: not a quiet machine."]
    reasons: dict[str, list[str]] = {}
    for result in results:
        for name, samples in result.engines.items():
            if samples.skipped:
                reasons.setdefault(f"{name}: {samples.skipped}", []).append(result.row.key)
    return text + [f"\n{reason} ({', '.join(keys)})" for reason, keys in reasons.items()]


def _read(result: Result) -> str:
    rate, share = result.read_rate, result.read_share
    if result.float_share is not None:
        return f"{100 * result.float_share:.0f} % of float32"
    if rate is None:
        return ""
    text = f"{rate / 1e9:.1f} GB/s" + (f", {100 * share:.0f} %" if share is not None else "")
    lie = median(result.weights_read) if result.weights_read else 0.0
    return text + (f" ({100 * rate / lie:.0f} % where they lie)" if lie else "")


def _number(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:.1f}"

