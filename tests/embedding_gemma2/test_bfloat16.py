"""In bfloat16, on the CPU: what is heard keeps a cosine of 0.997 at least, in the mean, with transformers' float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iron_core.declare.formats import bfloat16
from iron_embedding_gemma2 import names
from iron_embedding_gemma2.audio import Hearing
from iron_lm.blocks.log_mel import LogMelConfig
from iron_lm.run import Run
from tests.embedding_gemma2.weights import clip

SOUND, RUN = LogMelConfig(frames=104), Run(64, 64)


def cosine(a: Any, b: Any) -> float:
    """The mean cosine of rows."""
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    return float(np.mean((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)))


@pytest.mark.slow
def test_what_is_heard(golden: Any) -> None:
    """The soft tokens of clips of one token, of half a second and of a whole one."""
    config = golden.config
    part = Hearing(config.audio, SOUND, config.hidden_size, RUN)
    golden.filled(part, {f"tower.{path}": source for path, source in names.audio(config.audio).items()}, dtype=bfloat16)
    graph = part.compile(samples=((SOUND.samples,), np.float32), backend="host")
    for i, samples in enumerate((400, 7333, 16000)):
        want = golden[f"soft{i}"]
        got = graph(SOUND.laid(clip(samples, i)), count=SOUND.frames_of(samples), tokens=len(want))
        assert got.shape == want.shape and cosine(got, want) >= 0.997, i
