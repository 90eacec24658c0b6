"""`python docs/site/drawn.py`: the picture of the array on docs/streams.md, drawn from the code that stands there, into docs/weigh.svg."""

from __future__ import annotations

import re
import runpy
import tempfile
from pathlib import Path

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.visualize import style
from iron_core.visualize.array_plan import array_plan
from iron_core.visualize.array_svg import array_svg

DOCS = Path(__file__).parents[1]
PICTURE = DOCS / "weigh.svg"
#: Of a page's colours those that an array has; a picture by itself has no page behind it.
COLOURS = re.match(r".*?(?=\n\* \{)", style.PAGE, re.S)


def drawn() -> str:
    """The picture, with its colours in it."""
    source = re.search(r"^`weigh\.py`\n\n```python\n(.*?)^```", (DOCS / "streams.md").read_text(encoding="utf-8"), re.M | re.S)
    assert source and COLOURS
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "weigh.py").write_text(source[1], encoding="utf-8")
        weigh = runpy.run_path(f"{folder}/weigh.py")["Weigh"]
        design = build(weigh(rows=16, cols=64).resolved("npu1"), "npu1").design
        svg = array_svg(array_plan(design.array, fit(design)), "Weigh on npu1")
    look = f"{COLOURS[0]}\n{style.ARRAY}text {{ fill: var(--ink); font-family: sans-serif; }}"
    return svg.replace(">", f"><style>{look}</style>", 1) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
