"""What bfloat16 costs EmbeddingGemma 2 on the CPU is what it costs transformers, live, with the same weights. Needs torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest

from iron_core.declare.formats import bfloat16
from iron_embedding_gemma2 import described, names, vision
from iron_embedding_gemma2.text import TextTower
from iron_embedding_gemma2.vision import image_tower
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.checkpoints import huggingface
from iron_lm.checkpoints.sources import Names, sources_of
from iron_lm.run import Run
from tests.embedding_gemma2 import weights
from tests.embedding_gemma2.test_bfloat16 import cosines
from tests.embedding_gemma2.weights import PICTURED
from tests.oracle.make_embedding_gemma2 import config, padded, states
from tests.resizes import image_of

pytestmark = pytest.mark.oracle
torch = pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")
if not hasattr(transformers, "EmbeddingGemma2Model"):
    pytest.skip("this transformers has no EmbeddingGemma 2; 5.24 has", allow_module_level=True)

RUN = Run(64, 64)
TEXTS = [np.random.default_rng(n).integers(0, 500, n).astype(np.int32) for n in range(4, 65, 4)]
IMAGES = [image_of(height, width) for height, width in ((60, 90), (100, 41), (64, 64), (33, 100), (17, 30), (90, 90), (50, 70), (80, 20))]
PATCHES = ImagePatchesConfig(budget=12, pool=3, positions=129)
#: Weights by name, and the least mean cosine with float32: of some whose scores are about 1, and of some whose scores are about 4 to
#: 6, of which each token hears few others.
DRAWN: dict[str, tuple[Callable[..., Any], float]] = {
    "mild": (lambda name, shape: weights.mild(name, weights.numbers(name, shape)), 0.9995),
    "sharp": (weights.numbers, 0.99),
}


class _Rounded:
    """A checkpoint that has everything, in bfloat16."""

    def __init__(self, numbers: Callable[..., Any]) -> None:
        self.numbers = numbers

    def has(self, name: str) -> bool:
        return True

    def tensor(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        found = np.asarray(self.numbers(name, shape)).astype(bfloat16).astype(np.float32)
        return found


def filled(part: Any, named: Names, numbers: Callable[..., Any]) -> Any:
    shapes = part.tensors()
    taken = {path: source.read(_Rounded(numbers), shapes[path]) for path, source in sources_of(named, shapes).items()}
    return part.fill({path: array.astype(bfloat16) if array.shape else array for path, array in taken.items()})


def theirs(model: Any) -> list[np.ndarray]:
    """What is said of each token of each text; the soft tokens of each image."""
    said = [states(model, ids) for ids in TEXTS]
    for image in IMAGES:
        patches, positions = (torch.from_numpy(each)[None] for each in padded(image, PATCHES.budget))
        made = model.get_image_features(pixel_values=patches, image_position_ids=positions).pooler_output
        said.append(torch.cat(list(made)).float().numpy())
    return said


def ours(made: Any, numbers: Callable[..., Any]) -> list[np.ndarray]:
    read = attrs.evolve(described.config_of(huggingface.entries_of(json.loads(json.dumps(made.to_dict())))), pooling=None)
    text = filled(TextTower(read, RUN), names.text(read), numbers).compile(ids=((64,), np.int32), backend="host")
    said = []
    for ids in TEXTS:
        row = np.zeros(64, np.int32)
        row[: len(ids)] = ids
        said.append(np.asarray(text(row, rows=len(ids))))
    tower = {f"tower.{path}": source for path, source in vision.names(read.vision).items()}
    seen = filled(image_tower(read, PATCHES, RUN), tower, numbers).compile(picture=((100, 4096), np.uint8), backend="host")
    for image in IMAGES:
        laid, held = PATCHES.laid(image), np.zeros((100, 4096), np.uint8)
        held[: len(laid)] = laid
        size = image.shape[:2]
        said.append(np.asarray(seen(held, **PATCHES.sizes(*size), tokens=PATCHES.tokens(*size))))
    return said


@pytest.mark.parametrize("drawn", DRAWN)
def test_bfloat16_costs_what_it_costs_transformers(drawn: str) -> None:
    """Of many texts and images, mean cosines with transformers' float32 of the same rounded weights: ours no further from 1 than
    transformers' own bfloat16, but for a quarter: how far is a matter of chance."""
    numbers, least = DRAWN[drawn]
    torch.set_grad_enabled(False)
    made = config(**PICTURED)
    model = transformers.EmbeddingGemma2Model(made).eval()
    rounded = {name: torch.from_numpy(_Rounded(numbers).tensor(name, tuple(t.shape))) for name, t in model.state_dict().items()}
    model.load_state_dict(rounded)
    want, peer, got = theirs(model), theirs(model.bfloat16()), ours(made, numbers)
    for what, each in (("texts", slice(len(TEXTS))), ("images", slice(len(TEXTS), None))):
        mine, other = (
            np.concatenate([cosines(a, b) for a, b in zip(found[each], want[each], strict=True)]).mean() for found in (got, peer)
        )
        assert mine >= least and 1 - mine <= 1.25 * (1 - other), (what, mine, other)
