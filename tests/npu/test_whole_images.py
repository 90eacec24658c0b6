"""Llama 3.2 1B and EmbeddingGemma 2's text tower at their full size: every module holds together, and mlir-aie's tools take it."""

from __future__ import annotations

import json

import pytest

from iron_npu.image.image import freeze, thaw
from iron_npu.mlir.printer import Printed
from iron_npu.tools import gate
from tests.npu.structural import check
from tests.npu.whole import IMAGES, whole


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_a_whole_image_holds_together(name):
    """Nothing is wrong in any of its texts; all its versions are there, at the same residents, and it comes back from bytes."""
    image = whole(name)
    assert [problem for module in image.modules for problem in check(module.text)] == []
    decodes = name.startswith("llama")
    assert [version.name for version in image.versions] == (["main", "main_ids_64_int32"] if decodes else ["main_ids_2048_int32"])
    assert {dict(version.regions)["residents0"] for version in image.versions} == {image.resident_banks[0]}
    if image.kind == "elf":
        assert len(image.modules) == 1 and all(version.entries % 2 == 0 for version in image.versions)
        assert image.modules[0].text.count("aiex.scratchpad_parameter") <= 32
    again = thaw(freeze(image))
    assert again is not None and again.record() == image.record() == json.loads(json.dumps(image.record()))


@pytest.mark.toolchain
@pytest.mark.skipif(gate.missing() is not None, reason=gate.missing() or "")
@pytest.mark.parametrize("name", IMAGES)
def test_the_tools_take_a_whole_image(name, tmp_path):
    """Every module; those refused are listed together."""
    refused = []
    for module in whole(name).modules:
        folder = tmp_path / module.name
        folder.mkdir()
        said = gate.gate(Printed(module.text, module.objects, module.dynamic), folder)
        refused += [] if said is None else [f"{module.name}: {said}"]
    assert not refused, "\n".join(refused)
