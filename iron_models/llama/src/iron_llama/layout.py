"""Where a Llama's weights are."""

from iron_lm.layouts import layout

__all__ = ["layout"]
