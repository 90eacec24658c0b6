"""Weights of ONNX files."""

import _iron_start

_iron_start.check()
