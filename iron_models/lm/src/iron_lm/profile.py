"""`--profile`: what a backend recorded of a run, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from iron_core.backends import run_profile
from iron_core.backends.run_profile import Limits, Phase, Profiling, RunProfile
from iron_core.errors import UsageError
from iron_lm.generation.session import Session

#: Kernels named below a phase's table.
_KERNELS = 6
#: Of a backend that knows no limits: no share is shown.
_UNKNOWN = Limits(1, 0.0, 0.0, 0.0)


def profiled(session: Session) -> AbstractContextManager[RunProfile]:
    """Record what the session runs inside the block. UsageError where its backend keeps no times."""
    backend = session.compiled.backend
    if not isinstance(backend, Profiling):
        raise UsageError(f"--profile: backend {backend.name} keeps no times of its steps. Legal: --backend host or sim.")
    names = {(): "decode", (session.model.run.drafted,): "drafted tokens"}  # by the shape of its ids, if any
    versions = ((inputs[0][1] if inputs else (), version) for inputs, version in session.compiled.versions.items())
    return run_profile.profiled(backend, {names.get(shape, "prompt"): version.load() for shape, version in versions})


def lines(profile: RunProfile) -> list[str]:
    """The limits, where the backend knows them, and what the times are of; then a table per phase."""
    limits = profile.limits
    head = [profile.note] if profile.note else []
    if limits is not None:
        machine = (
            f"limits, {limits.threads} thread{'s' if limits.threads > 1 else ''}: read {limits.read_bytes / 1e9:.1f} GB/s · "
            f"float32 {limits.float_operations / 1e9:.0f} GFLOP/s · int8 {limits.int8_operations / 1e9:.0f} GOP/s"
        )
        rate = getattr(profile, "weights_read", None)
        head.append(machine + (f" · this model's weights where they lie {rate / 1e9:.1f} GB/s" if rate is not None else ""))
    return [*head, *(line for phase in profile.phases() for line in _phase(phase, limits or _UNKNOWN))]


def _phase(phase: Phase, limits: Limits) -> Iterator[str]:
    yield (
        f"{phase.name}: {phase.passes} pass{'es' if phase.passes > 1 else ''} of {phase.mean * 1e3:.2f} ms "
        f"(median {phase.median * 1e3:.2f}, fastest {phase.fastest * 1e3:.2f})"
        + (f", {phase.between_passes * 1e3:.2f} ms between passes" if phase.passes > 1 else "")
    )
    table: list[tuple[str, ...]] = [("", "steps", "ms", "share", "MB", "GB/s", "of read", "Gop/s", "of limit", "threads busy")]
    for row in phase.rows:
        most = limits.int8_operations if row.integer else limits.float_operations
        table.append(
            (
                row.kind,
                f"{row.steps:.0f}",
                f"{row.seconds * 1e3:.3f}",
                _share(row.seconds, phase.mean),
                f"{row.nbytes / 1e6:.2f}",
                f"{row.nbytes / row.seconds / 1e9:.2f}",
                _share(row.nbytes / row.seconds, limits.read_bytes),
                f"{row.operations / row.seconds / 1e9:.1f}" if row.operations else "",
                _share(row.operations / row.seconds, most) if row.operations else "",
                _share(row.busy, row.seconds * limits.threads),
            )
        )
    rest = phase.between_steps
    table.append(("between steps", "", f"{rest * 1e3:.3f}", _share(rest, phase.mean), *[""] * 6))
    yield from _aligned(table)
    yield "  by part of the model:"
    yield from _aligned(_categories(phase, limits))
    rate = phase.resident / phase.mean
    share = _share(rate, limits.read_bytes)
    of = f", {share} of the read limit" if share else ""
    yield f"  weights and caches: {phase.resident / 1e6:.1f} MB a pass at {rate / 1e9:.2f} GB/s{of}"
    named = [f"{name} {seconds * 1e3:.3f}" for name, seconds in phase.kernels[:_KERNELS]]
    if named:
        yield "  kernels, ms a pass: " + " · ".join(named)


def _categories(phase: Phase, limits: Limits) -> list[tuple[str, ...]]:
    """The same time by category. Operations are left out: a part has integers and floats."""
    table: list[tuple[str, ...]] = [("", "steps", "ms", "share", "MB", "GB/s", "of read", "threads busy")]
    for row in phase.categories:
        rate = row.nbytes / row.seconds
        table.append(
            (
                row.kind,
                f"{row.steps:.0f}",
                f"{row.seconds * 1e3:.3f}",
                _share(row.seconds, phase.mean),
                f"{row.nbytes / 1e6:.2f}",
                f"{rate / 1e9:.2f}",
                _share(rate, limits.read_bytes),
                _share(row.busy, row.seconds * limits.threads),
            )
        )
    return table


def _aligned(table: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        yield "  " + "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else ""
