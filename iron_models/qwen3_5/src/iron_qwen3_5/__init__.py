"""Qwen3.5 and Qwen3-Next models."""

import _iron_start

_iron_start.check()
