"""`KeptImages`: images of versions that a warm start takes, so that nothing is lowered.

What an image follows from is its version as it was read or kept, byte for byte, with the facts that hold of it; the residents that the
plan has it among; and what the backend says that its images follow from besides. All of that is the key.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from iron_core.backends.protocol import Restoring
from iron_core.cache.entry import About
from iron_core.cache.keys import digest
from iron_core.cache.store import Cache, optional
from iron_core.compiled.warm import WarmStart, lowerings
from iron_core.graph.signature import Signature
from iron_core.image.plan import Plan
from iron_core.image.reader import read
from iron_core.plugins.registry import labelled, registry

_FILE = "image.pickle"


class KeptImages:
    """The place of one version's image in the cache. `start`: where the version is from, or was kept."""

    def __init__(self, start: WarmStart) -> None:
        self.start, self.backend = start, start.backend

    def read(self, plan: Plan, signature: Signature) -> Any:
        """The image, ready to be loaded; None where there is none of all this."""
        backend, key = self.backend, self._key(plan, signature)
        if key is None or not isinstance(backend, Restoring):
            return None
        content = None
        with optional():
            content = Cache(backend.name).read(key, _FILE)
        image = None if content is None else read(content, backend.image_class, plan.version(signature).steps)
        with labelled(backend, "to make a kept image ready"):
            return image if image is not None and backend.restore(image) else None

    def keep(self, plan: Plan, signature: Signature, image: Any) -> None:
        """Keep it for the next start, where that can be."""
        backend, key = self.backend, self._key(plan, signature)
        if key is None or not isinstance(backend, Restoring):
            return
        steps = plan.version(signature).steps
        with labelled(backend, "to say whether an image may be kept"):
            content = _written(image, steps) if backend.keeps(image) else None
        if content is not None and read(content, backend.image_class, steps) is not None:
            with optional():
                Cache(backend.name).keep(key, _FILE, content, about=About("image", plan.name), replace=True)

    def _key(self, plan: Plan, signature: Signature) -> str | None:
        """None where what an image follows from is not known: whose the lowerings are that Iron has no hand in, they may ask anything."""
        backend, content = self.backend, self.start.content
        if content is None or not isinstance(backend, Restoring):
            return None
        for name in lowerings(plan.version(signature), backend.name):
            owners = registry().owners("lowerings", name)
            if ":" in name and not owners:
                continue  # a format's pack that lowers no such operator is not asked
            if not owners or not all(record.own for record in owners):
                return None
        with labelled(backend, "to say what its images follow from"):
            follows = backend.follows()
        residents = [(resident.name, resident.kind, resident.shape, str(resident.format)) for resident in plan.residents]
        return None if follows is None else digest("image", self.start.key, content, follows, plan.name, residents)


class _Writer(pickle.Pickler):
    """Names a version's steps by their number: they are in the plan."""

    def __init__(self, file: io.BytesIO, steps: Sequence[Any]) -> None:
        super().__init__(file, protocol=5)
        self._numbers = {id(step): number for number, step in enumerate(steps)}

    def persistent_id(self, item: Any) -> int | None:
        return self._numbers.get(id(item))


def _written(image: Any, steps: Sequence[Any]) -> bytes | None:
    file = io.BytesIO()
    try:
        _Writer(file, steps).dump(image)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None
    return file.getvalue()
