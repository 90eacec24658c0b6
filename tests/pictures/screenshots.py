"""`python tests/pictures/screenshots.py MODEL.gguf FOLDER`: a model's decode step as people see it drawn, to be looked at.

Three pages, each in light and in dark: the graph's, the array of the step that takes the most time (a part of the first), and an
operator's dataflow.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # run as a file, from wherever

from iron_core.backends.choose import get
from iron_core.visualize import html, operator_html
from iron_core.visualize.priced import operator_us, prices
from iron_lm.auto import Auto
from iron_ops_aie import GEMM
from tests.pictures.browser import Browser, find

LINE = ("--max-seq-len", "1024", "--backend", "sim", "--dev", "npu2")


def main(weights: str, folder: Path) -> None:
    program = find()
    if program is None:
        sys.exit("no chromium on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    compiled = Auto.compiled(["--checkpoint", weights, *LINE], fold=True)
    decode = next(iter(compiled.versions.values()))
    html(decode, folder / "decode.html", table=prices(compiled))
    op = GEMM(M=512, K=512, N=1024)
    operator_html(op, "npu2", path=folder / "gemm.html", us=operator_us(op, get("sim"), "npu2"))
    browser = Browser(program)
    try:
        for scheme in ("light", "dark"):
            graph = browser.open(folder / "decode.html", scheme=scheme)
            graph.shot(folder / f"graph-{scheme}.png", tallest=3000)
            graph.shot(folder / f"array-{scheme}.png", "details[open][id]")
            browser.open(folder / "gemm.html", scheme=scheme).shot(folder / f"operator-{scheme}.png", tallest=1600)
    finally:
        browser.close()
    for file in sorted(folder.glob("*.png")):
        print(file)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
