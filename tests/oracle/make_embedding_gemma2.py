"""Make tests/data/embedding_gemma2.npz: what transformers says of a tiny EmbeddingGemma 2.

    python -m tests.oracle.make_embedding_gemma2

Needs torch and transformers 5.24 or later, at the root of the repository. Its weights are drawn by name, and not stored.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.embedding_gemma2.weights import LENGTHS, PICTURED, clip, frames, numbers, text_of

FILE = Path(__file__).parents[1] / "data/embedding_gemma2.npz"
#: Samples of the clips: one frame and more, about half a second, a whole one.
CLIPS = (400, 7333, 16000)


def config(**vision: Any) -> Any:
    """Tiny; every layer's kind is there, and no two sizes are equal that may differ. vision: what differs in that tower."""
    import transformers as T

    def rope(theta: float) -> dict[str, Any]:
        return {"rope_type": "default", "rope_theta": theta}

    text = dict(
        vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, global_head_dim=32, num_global_key_value_heads=1, hidden_size_per_layer_input=16, sliding_window=2, embedding_dim=48,
        max_position_embeddings=640, rope_parameters={"sliding_attention": rope(1e4), "full_attention": rope(1e6)},
    )  # fmt: skip
    vision = dict(patch_size=4, pooling_kernel_size=2, position_embedding_size=32) | vision
    tower = T.Gemma4VisionConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16, **vision
    )
    audio = T.Gemma4AudioConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, subsampling_conv_channels=[128, 8], attention_chunk_size=4,
        attention_context_left=5, output_proj_dims=24,
    )  # fmt: skip
    return T.EmbeddingGemma2Config(
        text_config=T.EmbeddingGemma2TextConfig(**text), vision_config=tower, audio_config=audio, image_token_id=500,
        video_token_id=501, audio_token_id=502, boi_token_id=503, eoi_token_id=504, boa_token_id=505, eoa_token_index=506,
    )  # fmt: skip


def model(**vision: Any) -> Any:
    """The model, every weight drawn by its name. vision: as `config` has it."""
    import torch
    from transformers import EmbeddingGemma2Model

    torch.set_grad_enabled(False)
    made = EmbeddingGemma2Model(config(**vision)).eval()
    made.load_state_dict({name: torch.from_numpy(numbers(name, tuple(t.shape))) for name, t in made.state_dict().items()})
    return made


def said(made: Any) -> dict[str, np.ndarray]:
    """Of a text; of clips, their features, and their soft tokens; of a text with a clip, with an image, and with both."""
    import torch
    from transformers import Gemma4AudioFeatureExtractor

    found: dict[str, Any] = {"ids": np.random.default_rng(7).integers(0, 500, 60).astype(np.int32)}
    found["states"] = states(made, found["ids"])
    found["length_vectors"] = np.stack([states(made, text_of(n)).mean(0) for n in LENGTHS])
    extractor, heard = Gemma4AudioFeatureExtractor(), []
    for i, samples in enumerate(CLIPS):
        features = extractor([clip(samples, i)], sampling_rate=16000, return_tensors="pt")
        sound = {"input_features": features["input_features"], "input_features_mask": features["input_features_mask"].bool()}
        heard.append(sound)
        found[f"features{i}"] = sound["input_features"][0][sound["input_features_mask"][0]].numpy()
        tower = made.get_audio_features(**sound)
        found[f"soft{i}"] = tower.pooler_output[tower.attention_mask.bool()].numpy()
    seen = picture()
    both = {name: torch.from_numpy(array) for name, array in seen.items()}
    found["image"] = torch.cat(list(made.get_image_features(**both).pooler_output)).numpy()
    clip_ids, image_ids = [505, *[502] * len(found["soft1"]), 506], [503, *[500] * len(found["image"]), 504]
    for name, marked, given in (
        ("heard", clip_ids, heard[1]),
        ("seen", image_ids, both),
        ("mixed", [*clip_ids, 7, *image_ids], heard[1] | both),
    ):
        found[f"{name}_ids"] = np.array([2, 40, 41, *marked, 42, 43, 44, 1], np.int32)
        found[f"{name}_states"] = states(made, found[f"{name}_ids"], **given)
    return found | pictured()


def pictured() -> dict[str, np.ndarray]:
    """The mean of what is said of each token, of an image, and of a video of three frames, alone between <bos> and <eos>."""
    import torch

    made, (first, *_) = model(**PICTURED), frames()
    found = {}
    for name, images, budget, mark in (("image", [first], 280, 500), ("video", frames(), 70, 501)):
        patches, positions = (torch.from_numpy(np.stack(each)) for each in zip(*(padded(one, budget) for one in images), strict=True))
        tokens = int((positions[0] >= 0).all(-1).sum()) // 9
        ids = np.array([2, *[503, *[mark] * tokens, 504] * len(images), 1], np.int32)
        if name == "image":
            given = {"pixel_values": patches, "image_position_ids": positions}
        else:
            frame_count = torch.tensor([len(images)])
            given = {"pixel_values_videos": patches, "video_position_ids": positions, "num_frames_per_video": frame_count}
        found[f"{name}_vector"] = states(made, ids, **given).mean(0)
    return found


def padded(image: np.ndarray, budget: int) -> tuple[np.ndarray, np.ndarray]:
    """(patches, positions) as transformers' processors of images and of videos pad them, zeros and -1."""
    from tests.oracle.peers import patches_of, size_of

    rows, columns = (n // 16 for n in size_of(*image.shape[:2], budget))
    y, x = np.indices((rows, columns)).reshape(2, rows // 3, 3, columns // 3, 3).swapaxes(2, 3).reshape(2, -1)
    more = budget * 9 - len(x)
    positions = np.pad(np.stack([x, y], -1).astype(np.int64), ((0, more), (0, 0)), constant_values=-1)
    return np.pad(patches_of(image, budget), ((0, more), (0, 0))), positions


def picture() -> dict[str, np.ndarray]:
    """Sixteen patches of 4 x 4 pixels, and where they stand: as the image processor gives them."""
    rng = np.random.default_rng(11)
    places = np.stack(np.meshgrid(np.arange(4), np.arange(4)), -1).reshape(1, 16, 2)
    return {"pixel_values": rng.random((1, 16, 48)).astype(np.float32), "image_position_ids": places.astype(np.int64)}


def states(made: Any, ids: np.ndarray, **given: Any) -> np.ndarray:
    """What is said of each token."""
    import torch

    row = torch.from_numpy(ids.astype(np.int64))[None]
    found: np.ndarray = made(input_ids=row, attention_mask=torch.ones_like(row), **given).last_hidden_state[0].float().numpy()
    return found


if __name__ == "__main__":
    made = model()
    shapes = {name: list(tensor.shape) for name, tensor in made.state_dict().items()}
    np.savez_compressed(FILE, config=json.dumps(made.config.to_dict(), sort_keys=True), shapes=json.dumps(shapes), **said(made))
    print({name: array.shape for name, array in np.load(FILE).items()}, FILE.stat().st_size)
