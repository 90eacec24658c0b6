"""Which designs fit their device: the verdicts of placer and router, remembered in `<NPU_CACHE_HOME>/iron/fits`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from iron_core.array.fit import fit
from iron_core.cache.home import home, make
from iron_core.cache.keys import digest
from iron_core.cache.store import warn
from iron_core.errors import IronError, printable
from iron_core.files import write_whole
from iron_tuner.contents import contents
from iron_tuner.settings import Variant

FITS = "fits"
REFUSED = "refused: "


class Fits:
    """Verdicts by design: "fits", or "refused: " and why. root: the cache's, `home()` unless given."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.folder = (Path(root) if root is not None else home()) / "iron" / "fits"
        self._known: dict[Any, str] = {}

    def verdict(self, design: Any) -> str:
        """What placer, router and limits say of a `Design`."""
        if design not in self._known:
            path = self._path(design)
            try:
                said = path.read_text(encoding="utf-8")
            except (OSError, ValueError):
                said = ""
            if said != FITS and not said.startswith(REFUSED):
                said = _verdict(design)
                self._keep(path, said)
            self._known[design] = said
        return self._known[design]

    def refuse(self, design: Any, why: str) -> None:
        """Remember that a design could not be built, whatever placer and router say."""
        self._known[design] = REFUSED + printable(why, 400)
        self._keep(self._path(design), self._known[design])

    def refused(self, variant: Variant) -> str:
        """Why a setting does not fit; "" where it does, as all do that run on no array."""
        if not variant.dev.is_npu:
            return ""
        said = self.verdict(variant.built.design)
        return "" if said == FITS else said.removeprefix(REFUSED)

    def fitting(self, variants: Iterable[Variant]) -> list[Variant]:
        """Those that fit; the first, the default, stays whatever is said of it."""
        found = list(variants)
        return [one for one in found if one is found[0] or not self.refused(one)]

    def _path(self, design: Any) -> Path:
        return self.folder / digest(repr(design), contents("iron_core.array"))[:24]

    def _keep(self, path: Path, said: str) -> None:
        try:
            make(self.folder)
            write_whole(path, said)
        except OSError as error:
            warn(f"verdicts on designs are not kept in {printable(self.folder)} ({error.strerror}); the next run asks again.")


def _verdict(design: Any) -> str:
    try:
        fit(design)
    except IronError as error:
        return REFUSED + printable(error, 400)
    return FITS
