"""Phi-3 models."""

import _iron_start

_iron_start.check()
