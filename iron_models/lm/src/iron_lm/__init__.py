"""What every language model of Iron shares. `load()` gives a model to Python; a family of models derives from `Family`.

The names below load when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import _iron_start

if TYPE_CHECKING:
    from iron_lm.encoding import EncoderModel as EncoderModel
    from iron_lm.encoding import load_encoder as load_encoder
    from iron_lm.family import Family as Family
    from iron_lm.model import Model as Model
    from iron_lm.model import load as load

_iron_start.check()

_WHERE = {"EncoderModel": "encoding", "Family": "family", "Model": "model", "load": "model", "load_encoder": "encoding"}
__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'iron_lm' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"iron_lm.{_WHERE[name]}"), name)
    return value


def __dir__() -> list[str]:
    return list(__all__)
