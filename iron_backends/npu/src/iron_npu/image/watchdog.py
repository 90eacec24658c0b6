"""The driver's watchdog: it ends a run that takes too long, so a version that is estimated to is refused when it is made."""

from __future__ import annotations

from collections.abc import Mapping

from iron_core.backends.pricing import Prices, Pricing, pricing_backend
from iron_core.errors import BoundsError, UnsupportedError
from iron_core.graph.signature import describe_signature
from iron_core.image.array_image import ArrayImage

#: Microseconds after which the driver ends a run (`tdr_timeout_ms` of amdxdna, 2000 unless it is told otherwise).
WATCHDOG_US = 2e6


def longest(image: ArrayImage, prices: Prices) -> tuple[str, float]:
    """The longest run of a call and its microseconds: of a full ELF the whole call is one, else every step; "" and 0 of none."""
    if image.elf:
        return "the call", prices.total_us
    steps = ((f"step {step.name}", prices.step_us(step.name) or 0.0) for step in image.steps)
    return max(steps, key=lambda one: one[1], default=("", 0.0))


def check_estimate(graph: str, image: ArrayImage) -> Prices | None:
    """`check_time` by whoever prices the device here, as iron-sim does; None, and nothing is refused, where nobody does."""
    pricing = pricing_backend(image.dev)
    if pricing is None:
        return None
    try:
        prices = pricing.price(image)
    except UnsupportedError:  # it knows the device, and not how long it takes
        return None
    return check_time(graph, image, pricing, prices=prices)


def check_time(
    graph: str, image: ArrayImage, pricing: Pricing, limit_us: float = WATCHDOG_US, prices: Prices | None = None
) -> Prices:
    """What a call takes with values as large as they may be; UnsupportedError where a run is estimated past the watchdog, with the
    largest values with which none is. pricing: who estimates. prices: what it said of these largest values, if it was asked."""
    if prices is None:
        prices = pricing.price(image)
    what, us = longest(image, prices)
    if us <= limit_us:
        return prices
    most: Mapping[str, int] = getattr(prices, "values", {})
    given = ", ".join(f"{name}={n}" for name, n in most.items() if n)
    each = {name: _largest(image, pricing, most, [name], limit_us) for name, n in most.items() if n > 1}
    alone = [f"{name} up to {n[name]}" for name, n in each.items() if n is not None]
    together = None if alone else _largest(image, pricing, most, [name for name, n in most.items() if n > 1], limit_us)
    legal = " or ".join(alone) if alone else "" if together is None else ", ".join(f"{name} up to {n}" for name, n in together.items() if n)
    if legal:
        legal = f"a context with {legal}, or "
    split = "" if not image.elf else ", or boundaries=iron.each_step"
    where = f"{graph} for {describe_signature(image.version.signature)} on {image.dev}"
    raise UnsupportedError(
        f"{where}: {what} is estimated at {us / 1e6:.1f} s{f' with {given}' if given else ''}, and the driver's watchdog ends a run after "
        f"{limit_us / 1e6:g} s. Legal: {legal}fewer rows at once{split}."
    )


def _largest(image: ArrayImage, pricing: Pricing, most: Mapping[str, int], names: list[str], limit_us: float) -> dict[str, int] | None:
    """The values with those of these names made as much smaller, alike, as no run needs to be longer; None where even the least that
    arrays take are too much."""

    def at(part: int) -> dict[str, int]:
        return {name: max(n * part // parts, min(n, 1)) if name in names else n for name, n in most.items()}

    def takes(part: int) -> float | None:
        """Microseconds of the longest run; None of values that are too small for some array."""
        try:
            return longest(image, pricing.price(image, at(part)))[1]
        except BoundsError:
            return None

    parts = max((most[name] for name in names), default=0)
    low, high, found = -1, parts, False
    while high - low > 1:
        middle = (low + high) // 2
        us = takes(middle)
        fits = us is None or us <= limit_us
        found = found or (us is not None and fits)
        low, high = (middle, high) if fits else (low, middle)
    return at(low) if found else None
