"""BERT and MiniLM encoders."""

import _iron_start

_iron_start.check()
