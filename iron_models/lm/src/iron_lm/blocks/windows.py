"""`Windows`: where a kernel stands on a plane."""

from __future__ import annotations

import attrs

from iron_core.errors import ParamError
from iron_lm.fields import counted


@attrs.frozen(kw_only=True)
class Windows:
    """height, width: of the plane that goes in. kernel, stride, padding: (down, across); padding is on all sides."""

    height: int = attrs.field(validator=counted)
    width: int = attrs.field(validator=counted)
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int] = (0, 0)

    def __attrs_post_init__(self) -> None:
        where = type(self).__name__
        for name, least in (("kernel", 1), ("stride", 1), ("padding", 0)):
            pair = getattr(self, name)
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(n, int) and n >= least for n in pair)):
                raise ParamError(f"{where}: {name}={pair!r}; legal: (down, across), whole numbers, {least} or more.")
        if min(self.out_height, self.out_width) < 1:
            size = f"height={self.height}, width={self.width} with padding={self.padding}"
            raise ParamError(f"{where}: {size} has no room for kernel={self.kernel}; legal: as many places at least.")

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.padding[0] - self.kernel[0]) // self.stride[0] + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.padding[1] - self.kernel[1]) // self.stride[1] + 1
