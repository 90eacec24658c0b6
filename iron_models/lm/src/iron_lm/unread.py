"""Models whose weights nobody reads: for plans, prices and pictures of any size, in no memory."""

from __future__ import annotations

import attrs
import numpy as np

from iron_core.declare.formats import as_dtype
from iron_lm.architecture import Architecture
from iron_lm.decoder_config import DecoderConfig
from iron_lm.loading import Loaded, sized


def unread(
    family: type[Architecture],
    config: DecoderConfig,
    *,
    dtype: str = "bfloat16",
    max_seq_len: int | None = None,
    prefill_chunk: int | None = None,
) -> Loaded:
    """A model of this config, each of whose weights is one number that is seen as all of it: zeros that may not be written.

    What arrays take follows shapes alone. UsageError for a context or a chunk that the model does not have.
    """
    context, probe = sized(family, config, max_seq_len, prefill_chunk)
    run = attrs.evolve(probe, dtype=dtype, cache_dtype=dtype)
    zero = np.zeros((), as_dtype(dtype))
    weights = {path: np.broadcast_to(zero, shape) for path, shape in family.build(config, run).tensors().items()}
    return Loaded(family, config, run, weights, weights, None, None, context, f"unread {dtype}")
