"""`python -m bench.searched TABLE`: Llama 3.2 1B's decode step as it is, and as `JointNarrowing` makes it by a cost table that
`iron tune llama --random-weights` wrote, priced by estimates beside what was published of the same change."""

from __future__ import annotations

import argparse
from typing import Any

import iron_core as iron
from bench import predicted
from iron_core.cli.table import print_table
from iron_core.devices import device
from iron_core.image.array_image import ArrayImage
from iron_llama.model import Llama
from iron_lm.tunables import profile_of
from iron_lm.unread import unread
from iron_tuner.cost_table import CostTable
from iron_tuner.narrowing import JointNarrowing

#: The published milliseconds of a token, before and after, by device and packaging.
PUBLISHED = {
    ("npu2", "fused"): (1e3 / 14.80, 1e3 / 16.50), ("npu2", "separate"): (1e3 / 3.595, 1e3 / 4.795), ("npu1", "separate"): (361.5, 337.8)
}  # fmt: skip


def decode(table: CostTable | None, dev: str, dispatch: str) -> tuple[ArrayImage, Any]:
    """The image of a decode step, and what was decided of it by a table; with None as its family's profile has it."""
    given: dict[str, Any] = {} if table is None else dict(coresident=JointNarrowing(table))
    given |= dict(boundaries=iron.each_step) if device(dev).full_elf and dispatch == "separate" else {}
    with profile_of(Llama, device(dev)):
        model = unread(Llama, Llama.full_size(), max_seq_len=predicted.CACHE).model()
        (version,) = model.compile(backend="sim", dev=dev, **given).versions.values()
    return version.image, version.tuning


def main(argv: list[str] | None = None) -> int:
    """Print what was decided, and a row."""
    parser = argparse.ArgumentParser(prog="bench.searched", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("table", help="a cost table")
    parser.add_argument("--position", type=int, default=predicted.BEHIND, help="where the token stands")
    options = parser.parse_args(argv)
    table = CostTable.load(options.table)
    plain, _ = decode(None, table.device, table.dispatch)
    image, tuning = decode(table, table.device, table.dispatch)
    print(tuning.report())
    before, after = (predicted.token(one, options.position) for one in (plain, image))
    was, became = PUBLISHED.get((table.device, table.dispatch), (0.0, 0.0))
    row = (f"decode, {table.device}, {table.dispatch}, searched", "ms", f"{was:.4g} -> {became:.4g}", f"{before:.4g} -> {after:.4g}")
    gains = (f"{was / became:.3f}" if became else "", f"{before / after:.3f}")
    print()
    print_table(("", "unit", "measured", "predicted", "measured gain", "predicted gain"), [(*row, *gains)])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
