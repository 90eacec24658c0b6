"""`python gemma2_folder.py FOLDER`: EmbeddingGemma 2's full shape with drawn weights, and inputs.npz, what its rows are of.

Needs torch and transformers, whose configuration has the shape; run by their environment. 2.5 GB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers as T
from safetensors.torch import save_file
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

#: What clipped linears are held to.
BOUNDS = {"input_min": -2.0, "input_max": 1.75, "output_min": -1.5, "output_max": 2.25}
WORDS = ["<pad>", "<eos>", "<bos>", "<unk>"]
SIDE, POOL, BUDGET = 16, 3, 280

draws = torch.from_numpy(np.random.default_rng(0).standard_normal((1 << 24) + 1, np.float32))


def drawn(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Matrices of size 1 / root of what each output is made of, norms 1, of queries and keys less, so that scores are about 1."""
    last = name.rpartition(".")[2]
    if last in BOUNDS:
        return torch.full(shape, BOUNDS[last])
    if last == "layer_scalar":
        return torch.full(shape, 0.8)
    if len(shape) == 1:
        size = shape[0] ** -0.25 if name.endswith(("q_norm.weight", "k_norm.weight")) else 1.0
        return torch.full(shape, size if "norm" in name else 0.0)
    count = int(np.prod(shape))
    # One block of draws, of odd size, for every matrix: drawing them all takes a minute.
    return (draws.repeat(-(-count // len(draws)))[:count] / float(np.prod(shape[1:])) ** 0.5).reshape(shape)


def patches(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(patches, positions) of an image, token by token, padded to the budget."""
    height, width = get_aspect_ratio_preserving_size(*image.shape[:2], SIDE, BUDGET * POOL**2, POOL)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].contiguous()
    made = torch.nn.functional.interpolate(planes, size=(height, width), mode="bicubic", antialias=True)[0].permute(1, 2, 0).numpy()
    side = SIDE * POOL
    split = (made.astype(np.float32) / np.float32(255)).reshape(height // side, POOL, SIDE, width // side, POOL, SIDE, 3)
    cut = split.transpose(0, 3, 1, 4, 2, 5, 6).reshape(-1, SIDE * SIDE * 3)
    rows, columns = height // SIDE, width // SIDE
    y, x = np.indices((rows, columns)).reshape(2, rows // POOL, POOL, columns // POOL, POOL).swapaxes(2, 3).reshape(2, -1)
    more = BUDGET * POOL**2 - len(x)
    at = np.pad(np.stack([x, y], -1).astype(np.int64), ((0, more), (0, 0)), constant_values=-1)
    return np.pad(cut, ((0, more), (0, 0))), at


def ends() -> dict[str, Any]:
    """What puts <bos> first and <eos> last, as the released tokenizer does and `inputs.npz` has it."""
    special = {word: {"id": word, "ids": [WORDS.index(word)], "tokens": [word]} for word in ("<bos>", "<eos>")}
    first, last = ({"SpecialToken": {"id": word, "type_id": 0}} for word in special)
    single = [first, {"Sequence": {"id": "A", "type_id": 0}}, last]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, last],
        "special_tokens": special,
    }


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device("meta"):
        config = T.EmbeddingGemma2Config(audio_config=T.Gemma4AudioConfig(), vision_config=T.Gemma4VisionConfig())
        model = T.EmbeddingGemma2Model(config).eval()
    save_file({name: drawn(name, tuple(t.shape)) for name, t in model.state_dict().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(model.config.to_json_string(use_diff=False))
    special = [
        dict(id=i, content=word, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
        for i, word in enumerate(WORDS)
    ]
    words = {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "<unk>"}
    split = {"version": "1.0", "added_tokens": special, "pre_tokenizer": {"type": "WhitespaceSplit"}, "model": words}
    (folder / "tokenizer.json").write_text(json.dumps(split | {"post_processor": ends()}))
    rng, c = np.random.default_rng(5), model.config
    ids = rng.integers(4, 250000, 512)
    t = np.arange(160000) / 16000
    clip = (0.1 * np.sin(2 * np.pi * (300 + 40 * t) * t) + 0.02 * rng.standard_normal(t.size)).astype(np.float32)
    image = rng.integers(0, 256, (480, 640, 3), np.uint8)
    heard = T.Gemma4AudioFeatureExtractor()([clip], sampling_rate=16000, return_tensors="np")
    features, mask = np.asarray(heard["input_features"], np.float32), np.asarray(heard["input_features_mask"]).astype(bool)
    pixels, positions = patches(image)
    soft = int((positions >= 0).all(-1).sum()) // POOL**2
    clip_ids = [2, c.boa_token_id, *[c.audio_token_id] * -(-int(mask.sum()) // 4), c.eoa_token_index, 1]
    image_ids = [2, c.boi_token_id, *[c.image_token_id] * soft, c.eoi_token_id, 1]
    given = dict(clip=clip, image=image, features=features, mask=mask, patches=pixels[None], positions=positions[None])
    np.savez(folder / "inputs.npz", ids=ids, clip_ids=np.array(clip_ids), image_ids=np.array(image_ids), **given)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
