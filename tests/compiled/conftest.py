"""A projection, compiled for the reference backend, and what it is of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiled.graphs import F32, Project


@pytest.fixture
def w():
    return np.random.default_rng(1).standard_normal((6, 8)).astype(F32)


@pytest.fixture
def x():
    return np.random.default_rng(2).standard_normal((16, 8)).astype(F32)


@pytest.fixture
def project(w):
    return Project(w).compile(x=((16, 8), F32), backend="reference")
