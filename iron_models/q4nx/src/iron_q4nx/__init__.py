"""Checkpoints in the format of FastFlowLM."""

import _iron_start

_iron_start.check()
