"""`iron checkpoints`: what a file of weights holds."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iron_core.cli import main

Iron = Callable[..., tuple[int, str, str]]


@pytest.fixture
def checkpoints(capsys: pytest.CaptureFixture[str]) -> Iron:
    """`iron checkpoints ARGV...` in this process: (status, standard output, standard error)."""

    def run(*argv: object) -> tuple[int, str, str]:
        status = main(["checkpoints", *map(str, argv)])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def shown(checkpoints: Iron, path: Path) -> dict[str, Any]:
    status, out, err = checkpoints("show", path, "--json")
    assert (status, err) == (0, "")
    return dict(json.loads(out))


def with_refused(folder: Path) -> Path:
    """A safetensors file with a tensor of a dtype that Iron does not take."""
    entries = {
        "kept": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "odd": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [24, 28]},
    }
    header = json.dumps(entries).encode()
    path = folder / "some.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(28))
    return path


def test_show_lists_the_tensors_of_a_folder(checkpoints: Iron, tiny: Any) -> None:
    """Each tensor's shape, format and bytes, the entries of config.json, and sums by format."""
    facts = shown(checkpoints, tiny.checkpoint.path)
    tensors = {one["name"]: one for one in facts["tensors"]}
    assert list(tensors) == list(tiny.checkpoint.tensors) and facts["architecture"] == "llama"
    assert tensors["lm_head.weight"] == {"name": "lm_head.weight", "shape": [256, 64], "format": "float32", "bytes": 65536}
    assert facts["metadata"]["config.hidden_size"] == 64 and facts["metadata"]["config.rope_parameters.rope_type"] == "llama3"
    assert facts["formats"] == {"float32": {"tensors": 21, "bytes": facts["bytes"]}}
    assert facts["bytes"] == sum(np.asarray(array).nbytes for _, _, array in tiny.checkpoint.tensors.values())


def test_show_lists_the_tensors_of_a_gguf(checkpoints: Iron, tiny_gguf: Any) -> None:
    """Block formats by name; of a long list, how much there is; the format with the most bytes first."""
    facts = shown(checkpoints, tiny_gguf("Q4_1", head="Q8_0", metadata={"general.list": list(range(40)), "general.nan": float("nan")}))
    assert {one["name"]: one["format"] for one in facts["tensors"]}["blk.0.attn_q.weight"] == "q4_1"
    assert facts["metadata"]["general.list"] == "40 entries" and facts["metadata"]["general.nan"] == "nan"
    sizes = [sums["bytes"] for sums in facts["formats"].values()]
    assert sizes == sorted(sizes, reverse=True) and set(facts["formats"]) == {"q4_1", "q8_0", "float32"}


def test_show_prints_the_same_as_tables(checkpoints: Iron, tiny_gguf: Any) -> None:
    """Without --json: one line of what it is, then entries, tensors and sums."""
    path = tiny_gguf("Q4_1")
    status, out, err = checkpoints("show", path)
    assert (status, err) == (0, "") and out.startswith("GGUF 3 · llama")
    size = shown(checkpoints, path)["bytes"]
    for row in (r"llama.embedding_length +64", r"blk.0.attn_q.weight +128 x 64 +q4_1 +5120", rf"all +22 +{size}"):
        assert re.search(f"^{row}$", out, re.M), (row, out)


def test_show_says_what_is_not_read(checkpoints: Iron, tmp_path: Path) -> None:
    """A tensor of a dtype that Iron does not take is listed apart, with the reason, and in no sum."""
    path = with_refused(tmp_path)
    facts = shown(checkpoints, path)
    assert [one["name"] for one in facts["tensors"]] == ["kept"] and facts["bytes"] == 24
    assert [one["name"] for one in facts["refused"]] == ["odd"] and "'F8_E4M3'" in facts["refused"][0]["reason"]
    assert re.search(r"^odd +.*F8_E4M3", checkpoints("show", path)[1], re.M)


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("show", "nowhere.gguf"), "nowhere.gguf: no such file or folder"),
        (("show",), "Missing argument 'FILE'"),
        (("shew", "x"), "No such command 'shew'"),
    ],
)
def test_a_mistake_is_one_line(checkpoints: Iron, argv: tuple[str, ...], says: str) -> None:
    """What is wrong with a line is said in one line, with exit status 2 and nothing on standard output."""
    status, out, err = checkpoints(*argv)
    assert (status, out) == (2, "") and re.fullmatch(r"error: [^\n]+\n", err) and says in err, err


def test_without_a_command_it_says_what_it_has(checkpoints: Iron) -> None:
    """`iron checkpoints` alone prints its help."""
    status, out, _ = checkpoints()
    assert status == 0 and "show" in out
