"""What torch and transformers make of clips and images, live. Needs both."""

from __future__ import annotations

import numpy as np
import torch
from transformers.models.gemma4.feature_extraction_gemma4 import Gemma4AudioFeatureExtractor
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

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
