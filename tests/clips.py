"""Clips of sound at 16 kHz that the tests share, made by formula: noise, harmonics over it, steps, clicks, silence."""

from __future__ import annotations

import numpy as np

#: Clips by name: (samples, loudness).
CLIPS: dict[str, tuple[int, float]] = {
    "noise": (8000, 0.3), "faint": (5000, 0.01), "loud": (4000, 0.9), "short": (161, 0.3), "nothing": (160, 0.3), "odd": (3333, 0.2),
    "whole": (3200, 0.2), "second": (16000, 0.1), "long": (48000, 0.1), "speech": (8000, 0.1), "speech2": (12345, 0.3),
    "speech3": (20000, 0.05),
    "steps": (6400, 0.5), "steps2": (7000, 0.1), "clicks": (8000, 1.0), "silence": (4000, 0.0), "half": (6000, 0.2), "rising": (9000, 0.3),
    "falling": (9000, 0.3), "saw": (8000, 0.4),
}  # fmt: skip


def clip(name: str) -> np.ndarray:
    """float32 (samples,). A faint noise lies under what would otherwise leave bands empty: a pure tone's are a million times fainter
    than it, and no two transforms in float32 agree on them."""
    samples, loudness = CLIPS[name]
    rng = np.random.default_rng(sorted(CLIPS).index(name))
    t, noise = np.arange(samples) / 16000, rng.standard_normal(samples)
    match name.rstrip("23"):
        case "speech":
            voice = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 50))
            sound = voice * (1 + np.sin(2 * np.pi * 4 * t)) / 4 + 0.1 * noise
        case "steps":
            sound = np.sign(np.sin(2 * np.pi * 220 * t)) + 0.5 * noise
        case "clicks":
            sound = (rng.random(samples) < 0.001) * 1.0
        case "half":
            sound = noise * (t < t[-1] / 2)
        case "rising" | "falling":
            sound = np.sin(2 * np.pi * (100 + 2000 * t) * t) * (t if name == "rising" else t[::-1]) + 0.2 * noise
        case "saw":
            sound = (t * 330) % 1 - 0.5 + 0.4 * noise
        case _:
            sound = noise
    return (loudness * sound).astype(np.float32)
