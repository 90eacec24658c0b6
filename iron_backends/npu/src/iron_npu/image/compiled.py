"""`CompiledVersion`: what compiling one version gives: the image of its graph, and the arrays that it is made of."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from iron_core.graph.signature import Signature
from iron_core.image.array_image import ArrayImage, array_image
from iron_core.image.plan import Plan, VersionPlan
from iron_npu.image.core_memory import Linked
from iron_npu.image.image import Image
from iron_npu.image.making import image_of


@attrs.frozen(eq=False)
class CompiledVersion:
    """One version, in the image of all that its graph had when it was compiled. arrays: by the image's versions. It pickles."""

    signature: Signature
    image: Image
    arrays: tuple[ArrayImage, ...]

    @property
    def array(self) -> ArrayImage:
        """The version's own."""
        return next(array for array in self.arrays if array.version.signature == self.signature)

    def record(self) -> dict[str, object]:
        """The whole image as plain data; see `iron_npu.image.image.Image.record`."""
        return self.image.record()

    @property
    def steps(self) -> tuple[object, ...]:
        return self.array.steps


def compiled(
    plan: Plan,
    signature: Signature,
    arrays: Mapping[VersionPlan, ArrayImage],
    known: CompiledVersion | None = None,
    linked: Linked | None = None,
) -> CompiledVersion:
    """A version of a plan. arrays: what is made already of its versions. known: this version as it was compiled, which is good enough where
    the plan has no others. linked: see `iron_npu.image.making.image_of`."""
    held = {one.version.signature: one for one in known.arrays} if known is not None else {}
    if known is not None and held.keys() == {version.signature for version in plan.versions}:
        return known
    made = {
        version.signature: arrays.get(version) or held.get(version.signature) or array_image(plan, version.signature)
        for version in plan.versions
    }
    return CompiledVersion(signature, image_of(plan, made, linked=linked), tuple(made.values()))
