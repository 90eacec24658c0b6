"""PatchPositions on the host: kernel `patch_positions` of images.h."""

from __future__ import annotations

from iron_host.kernels import PATCH_POSITIONS
from iron_host.lowerings.template import TemplateLowering


class PatchPositions(TemplateLowering):
    """Places are shared among threads."""

    operator = "iron_ops_aie.PatchPositions"
    header, template, slots, dtypes = "images.h", "patch_positions", PATCH_POSITIONS, ()
