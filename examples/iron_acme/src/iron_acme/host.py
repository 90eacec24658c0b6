"""SquaredReLU on the CPU: the loop of elementwise.h over an operation of our own."""

from pathlib import Path

from iron_host.lowering import Header, Unary


class SquaredReLU(Unary):
    """An operation, `of`, on eight float32 at a time; it may stand behind other steps in one kernel."""

    operator = "iron_acme.SquaredReLU"
    header = Header(Path(__file__).with_name("squared_relu.h"))
    operation = "iron_acme::SquaredReLU"
