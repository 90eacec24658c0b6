"""Encoders on simulated arrays: EmbeddingGemma 2's towers, the graphs that merge what they make with a text, and BERT."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import iron_core as iron
from iron_bert.model import BERT
from iron_core.declare.formats import bfloat16
from iron_embedding_gemma2.config import AudioConfig, TextConfig, VisionConfig
from iron_embedding_gemma2.heard_text import HeardText
from iron_embedding_gemma2.mixed_text import MixedText
from iron_embedding_gemma2.model import EmbeddingGemma2
from iron_embedding_gemma2.seen_text import SeenText
from iron_embedding_gemma2.text import TextTower
from iron_lm.blocks.image_patches import ImagePatchesConfig
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.parts.rotary import RotaryConfig
from iron_lm.run import Run
from tests.embedding_gemma2.conftest import drawn
from tests.embedding_gemma2.weights import clip, mild

RUN = Run(64, 64)
#: A layer that slides and one that sees all; the towers have a layer each.
CONFIG: TextConfig = attrs.evolve(
    EmbeddingGemma2.full_size(),
    vocab_size=512,
    hidden_size=256,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    head_dim=64,
    intermediate_size=512,
    max_positions=64,
    rotary=RotaryConfig(128, 1e6),
    local_rotary=RotaryConfig(64, 1e4),
    window=8,
    sliding=(True, False),
    global_head_dim=128,
    signal_size=256,
    output_size=256,
    audio=AudioConfig(hidden_size=256, num_layers=1, num_heads=4, channels=(32, 16), output_size=256),
    vision=VisionConfig(hidden_size=256, num_layers=1, num_heads=4, head_dim=64, intermediate_size=512, positions=63),
)
SOUND, PATCHES = LogMelConfig(frames=256), ImagePatchesConfig(budget=6, room=64, positions=64)
SIZES: dict[str, Any] = dict(vocab_size=512, hidden_size=64, num_layers=2, num_heads=2, num_kv_heads=2, intermediate_size=128)
SMALL_BERT = attrs.evolve(BERT.full_size(), **SIZES, max_positions=64)
PICTURE = np.random.default_rng(3).integers(0, 256, (60, 90, 3)).astype(np.uint8)


def ids(*marks: tuple[int, int]) -> np.ndarray:
    """A text of 20 tokens among which marks stand, so many of each."""
    inside = [mark for mark, count in marks for _ in range(count)]
    given = np.zeros(64, np.int32)
    given[: 20 + len(inside)] = [*range(1, 11), *inside, *range(11, 21)]
    return given


def text() -> Any:
    return TextTower(CONFIG, RUN), (ids(),), dict(rows=20)


def heard() -> Any:
    """Of 53 frames, 14 soft tokens."""
    samples = clip(8500, 1)
    count = SOUND.frames_of(len(samples))
    tokens = -(-count // 4)
    marked = attrs.evolve(CONFIG, marks=attrs.evolve(CONFIG.marks, audio=500, image=501, video=502))
    values = dict(rows=20 + tokens, count=count, heard=tokens)
    return HeardText(marked, SOUND, RUN), (ids((500, tokens)), SOUND.laid(samples)), values


def seen() -> Any:
    height, width = PICTURE.shape[:2]
    (down, across), tokens = PATCHES.grid(height, width), PATCHES.tokens(height, width)
    marked = attrs.evolve(CONFIG, marks=attrs.evolve(CONFIG.marks, audio=500, image=501, video=502))
    values = dict(rows=20 + tokens, height=height, width=width, down=down, across=across, tokens=tokens)
    return SeenText(marked, PATCHES, RUN), (ids((501, tokens)), PATCHES.laid(PICTURE)), values


def mixed() -> Any:
    _, (_, samples), sound = heard()
    _, (_, picture), image = seen()
    values = sound | image | dict(rows=20 + sound["heard"] + image["tokens"])
    marked = attrs.evolve(CONFIG, marks=attrs.evolve(CONFIG.marks, audio=500, image=501, video=502))
    both = ids((501, image["tokens"]), (500, sound["heard"]))
    return MixedText(marked, SOUND, PATCHES, RUN), (both, samples, picture), values


def bert() -> Any:
    return BERT.build(SMALL_BERT, RUN), (ids(),), dict(rows=20)


def hearing() -> Any:
    part, (_, samples), values = heard()
    return part.hearing, (samples,), dict(count=values["count"], tokens=values["heard"])


def seeing() -> Any:
    part, (_, picture), values = seen()
    return part.seeing, (picture,), {name: values[old] for name, old in SEEING.items()}


SEEING = dict(height="height", width="width", rows="down", columns="across", tokens="tokens")
#: Of each, what it is given by name, and the inputs of its twin.
MADE: dict[Any, tuple[tuple[str, ...], Any]] = {
    text: (("ids",), lambda x, v: (x[0][: v["rows"]],)),
    hearing: (("samples",), lambda x, v: (x[0], v["count"])),
    seeing: (("picture",), lambda x, v: (PICTURE,)),
    heard: (("ids", "samples"), lambda x, v: (x[0][: v["rows"]], x[1], v["count"])),
    seen: (("ids", "picture"), lambda x, v: (x[0][: v["rows"]], PICTURE)),
    mixed: (("ids", "samples", "picture"), lambda x, v: (x[0][: v["rows"]], x[1], v["count"], PICTURE)),
    bert: (("ids",), lambda x, v: (x[0][: v["rows"]],)),
}


def off(a: Any, b: Any) -> float:
    """The norm of the difference over that of b."""
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.slow
@pytest.mark.parametrize("dev", ["npu1", "npu2"])
@pytest.mark.parametrize("made", MADE, ids=lambda made: made.__name__)
def test_rows_are_those_of_the_references(made: Any, dev: str) -> None:
    """Within 2 % of the norm of every step's numpy, and of float32's that knows no operator; on npu2 each is a full ELF, but that with
    both towers, which has more per-call words than one holds."""
    part, inputs, values = made()
    weights = {path: mild(path, array).astype(bfloat16) if array.shape else array for path, array in drawn(part).items()}
    part.fill(weights)
    given, of_twin = MADE[made]
    shapes = {name: (array.shape, array.dtype) for name, array in zip(given, inputs, strict=True)}
    options = {"boundaries": iron.each_step} if made is mixed else {}
    got = part.compile(backend="sim", dev=dev, **options, **shapes)(*inputs, **values)
    want = part.reference(*inputs, **values)
    assert got.shape == want.shape and off(got, want) <= 0.02
    assert off(got, part.twin(weights, *of_twin(inputs, values))) <= 0.02
