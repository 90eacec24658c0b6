"""What files of the layout are called, and what Iron's own say of themselves."""

from __future__ import annotations

WEIGHTS, CONFIG = "model.q4nx", "config.json"
#: The entry of a file's `__metadata__` that says what its 4-bit chunks were made from; FastFlowLM, which skips it, writes none.
QUANTIZED_FROM = "quantized_from"
