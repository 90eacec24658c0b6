"""An image as a folder: its modules' text, and its record, which says what each of them links and what is built of them."""

from __future__ import annotations

import json
from pathlib import Path

from iron_core.errors import UsageError, printable
from iron_core.files import write_whole
from iron_npu.image.image import Image

RECORD = "record.json"


def write_image(image: Image, folder: str | Path) -> list[Path]:
    """Write `MODULE.mlir` for each module and `record.json` into a folder, made where it is not; what was written.

    What an earlier image left there goes. UsageError for a folder that holds other things, or cannot be written.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in _left(folder):
            (folder / name).unlink(missing_ok=True)
        texts = {f"{module.name}.mlir": module.text for module in image.modules}
        texts[RECORD] = json.dumps(image.record(), indent=1) + "\n"
        for name, text in texts.items():
            write_whole(folder / name, text)
    except OSError as error:
        raise UsageError(f"--emit {printable(folder, 200)}: {error.strerror}.") from None
    return [folder / name for name in texts]


def _left(folder: Path) -> list[str]:
    """The files of the image that a folder holds; none, of an empty one."""
    there = {path.name for path in folder.iterdir()}
    try:
        files = [module["file"] for module in json.loads((folder / RECORD).read_text(encoding="utf-8"))["modules"]] if there else []
    except (OSError, ValueError, LookupError, TypeError):
        files = []
    if there - {RECORD, *files} or (there and not files):
        raise UsageError(f"--emit {printable(folder, 200)}: it holds other files. Legal: a new or empty folder, or an earlier --emit.")
    return [name for name in (*files, RECORD) if Path(name).name == name]
