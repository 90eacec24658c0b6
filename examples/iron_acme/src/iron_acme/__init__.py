"""iron-acme. Names load on first use, so importing one operator imports one operator's module."""

from iron_core.lazy_names import lazy_names

__all__ = ["SquaredReLU"]
__getattr__, __dir__ = lazy_names(__name__, {"SquaredReLU": "squared_relu"})
