"""What most operators derive from."""

from iron_core.bases.binary import BinaryElementwise
from iron_core.bases.rowwise import Rowwise
from iron_core.bases.unary import UnaryElementwise

__all__ = ["BinaryElementwise", "Rowwise", "UnaryElementwise"]
