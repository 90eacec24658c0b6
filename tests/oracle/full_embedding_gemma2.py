"""EmbeddingGemma 2 at its full shape with drawn weights: a text, a clip and an image, ours beside transformers' in float32.

    python -m tests.oracle.full_embedding_gemma2 [FOLDER]

Needs torch and transformers 5.24 or later, at the root of the repository; 3 GB in FOLDER (a temporary one by default), 6 GB of memory
and some minutes. It is no test of a session: it prints what it finds, and fails where a vector is off by more than 1e-3 of its length.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.embedding_gemma2 import weights
from tests.embedding_gemma2.conftest import tokenizer, unit
from tests.embedding_gemma2.weights import clip
from tests.oracle.make_embedding_gemma2 import padded, states
from tests.resizes import image_of

#: Tokens of the text; samples of the clip, ten seconds; pixels of the image.
TOKENS, SAMPLES, SIZE = 512, 160000, (480, 640)
#: Of a vector of length 1 at most.
CLOSE = 1e-3


def inputs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.random.default_rng(5).integers(4, 250000, TOKENS).astype(np.int32), clip(SAMPLES, 1), image_of(*SIZE)


def numbers(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """As `weights.numbers`, with scores of attention about 1."""
    return np.asarray(weights.mild(name, weights.numbers(name, shape)))


def theirs(folder: Path) -> dict[str, np.ndarray]:
    """Of each, the vector that transformers gives; the checkpoint is written into the folder."""
    import torch
    import transformers as T
    from safetensors.torch import save_file

    torch.set_grad_enabled(False)
    with torch.device("meta"):
        config = T.EmbeddingGemma2Config(audio_config=T.Gemma4AudioConfig(), vision_config=T.Gemma4VisionConfig())
        made = T.EmbeddingGemma2Model(config).eval()
    drawn = {name: torch.from_numpy(numbers(name, tuple(t.shape))) for name, t in made.state_dict().items()}
    save_file(drawn, folder / "model.safetensors")
    (folder / "config.json").write_text(made.config.to_json_string(use_diff=False))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer()))
    del drawn, made
    model = T.EmbeddingGemma2Model.from_pretrained(folder, dtype=torch.float32).eval()
    c = model.config
    ids, sound, image = inputs()
    features = T.Gemma4AudioFeatureExtractor()([sound], sampling_rate=16000, return_tensors="pt")
    heard = {"input_features": features["input_features"], "input_features_mask": features["input_features_mask"].bool()}
    frames = int(heard["input_features_mask"].sum())
    patches, positions = (torch.from_numpy(each)[None] for each in padded(image, 280))
    tokens = int((positions >= 0).all(-1).sum()) // 9
    clip_ids = [2, c.boa_token_id, *[c.audio_token_id] * -(-frames // 4), c.eoa_token_index, 1]
    image_ids = [2, c.boi_token_id, *[c.image_token_id] * tokens, c.eoi_token_id, 1]
    seen = {"pixel_values": patches, "image_position_ids": positions}
    return {
        "text": _timed("transformers", "text", lambda: states(model, ids).mean(0)),
        "clip": _timed("transformers", "clip", lambda: states(model, np.array(clip_ids, np.int32), **heard).mean(0)),
        "image": _timed("transformers", "image", lambda: states(model, np.array(image_ids, np.int32), **seen).mean(0)),
    }


def _timed(who: str, what: str, vector: Any) -> np.ndarray:
    start = time.perf_counter()
    found = unit(vector())
    print(f"{who}, {what}: {time.perf_counter() - start:.1f} s", flush=True)
    return found


def ours(folder: Path) -> dict[str, np.ndarray]:
    """The same of Iron on the host."""
    from iron_embedding_gemma2 import embedder

    model = embedder.load(folder, max_seq_len=TOKENS, backend="host")
    ids, sound, image = inputs()
    return {
        "text": _timed("iron", "text", lambda: model.vectors([[int(i) for i in ids]])[0]),
        "clip": _timed("iron", "clip, with its compile", lambda: model.embed_clip(sound)),
        "image": _timed("iron", "image, with its compile", lambda: model.embed_image(image)),
    }


def main(folder: Path) -> int:
    """The exit status."""
    peak = []
    found = []
    for side in (theirs, ours):
        found.append(side(folder))
        peak.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
    off = {name: float(np.linalg.norm(found[1][name] - want)) for name, want in found[0].items()}
    print({name: f"{each:.1e}" for name, each in off.items()}, f"of a vector's length; {peak[0]:.1f} GB at most, then {peak[1]:.1f}")
    return int(max(off.values()) > CLOSE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(Path(made)))
