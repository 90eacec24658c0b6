"""What torch and transformers make of clips and images, live. Needs both."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size
from transformers.models.gemma4.modeling_gemma4 import Gemma4MultimodalEmbedder, Gemma4VisionModel

from iron_embedding_gemma2.vision import names
from iron_lm.checkpoints.sources import source_of

SIDE, POOL = 16, 3


def spectrogram(clip: np.ndarray) -> np.ndarray:
    """The feature extractor's frames of a clip, those that it does not mask."""
    made = Gemma4AudioFeatureExtractor()([clip], return_tensors="np")
    return np.asarray(made["input_features"][0][made["input_features_mask"][0].astype(bool)])


def size_of(height: int, width: int, budget: int) -> tuple[int, int]:
    """(height, width) that an image is resized to."""
    return get_aspect_ratio_preserving_size(height, width, SIDE, budget * POOL**2, POOL)


def tokens_of(height: int, width: int, budget: int) -> int:
    down, across = size_of(height, width, budget)
    return down * across // (POOL * SIDE) ** 2


def patches_of(image: np.ndarray, budget: int) -> np.ndarray:
    """float32 (patches, 768): torchvision's call of torch, pixels / 255, patches token by token."""
    down, across = size_of(*image.shape[:2], budget)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].contiguous()
    made = torch.nn.functional.interpolate(planes, size=(down, across), mode="bicubic", antialias=True)[0].permute(1, 2, 0).numpy()
    pixels = made.astype(np.float32) / np.float32(255)
    split = pixels.reshape(down // 48, POOL, SIDE, across // 48, POOL, SIDE, 3)
    return split.transpose(0, 3, 1, 4, 2, 5, 6).reshape(-1, SIDE * SIDE * 3)


def soft_tokens(config: Any, weights: dict[str, np.ndarray], patches: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """What Gemma 4's vision tower and a projector behind it make of patches, with the weights of a `VisionTower` of this config."""
    c = config
    theirs = transformers.Gemma4VisionConfig(
        hidden_size=c.hidden_size, intermediate_size=c.intermediate_size, num_hidden_layers=c.num_layers,
        num_attention_heads=c.num_heads, num_key_value_heads=c.num_heads, head_dim=c.head_dim, patch_size=c.patch,
        pooling_kernel_size=c.pool, position_embedding_size=c.positions, attn_implementation="eager",
        use_clipped_linears=c.clipped, standardize=c.standardize,
    )  # fmt: skip
    with torch.no_grad():
        model = Gemma4VisionModel(theirs).eval()
        named = {source_of(names(c), path).name.removeprefix("vision_tower."): torch.from_numpy(w) for path, w in weights.items()}
        matrix = named.pop("embed_vision.embedding_projection.weight")
        model.load_state_dict(named)
        made = model(torch.from_numpy(patches)[None], torch.from_numpy(positions.astype(np.int64))[None]).last_hidden_state
        projector = Gemma4MultimodalEmbedder(theirs, transformers.Gemma4TextConfig(hidden_size=len(matrix)))
        projector.embedding_projection.weight.copy_(matrix)
        return np.asarray(projector(made).numpy())
