"""Qwen3-MoE models."""

import _iron_start

_iron_start.check()
