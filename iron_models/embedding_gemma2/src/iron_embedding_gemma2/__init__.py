"""EmbeddingGemma 2 models."""

import _iron_start

_iron_start.check()
