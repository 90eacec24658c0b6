"""What most operators derive from."""

from iron_core.bases.binary import BinaryElementwise
from iron_core.bases.rowwise import Rowwise, every_row
from iron_core.bases.unary import UnaryElementwise

__all__ = ["BinaryElementwise", "Rowwise", "UnaryElementwise", "every_row"]
