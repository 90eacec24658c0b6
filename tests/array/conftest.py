"""Designs of operators, for the rules of the specification; they are data, and no test can change them."""

import pytest

from iron_core.array.build import build
from iron_ops_aie.elementwise.elementwise_add import ElementwiseAdd
from iron_ops_aie.moving.copy import Copy


@pytest.fixture(scope="session")
def plain():
    """Two inputs through the cores of a device: fills, drains, words and barriers, the same for every call."""
    return build(ElementwiseAdd(size=4096), "npu1").design


@pytest.fixture(scope="session")
def add():
    """The same with a length told per call."""
    return build(ElementwiseAdd(size=4096), "npu2", {"valid"}).design


@pytest.fixture(scope="session")
def gather():
    """A copy by ids: control flows whose packets drive channels."""
    return build(Copy(input_size=512 * 64, gather=True, table_rows=64, rows=8), "npu2").design
