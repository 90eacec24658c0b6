"""What is stored of EmbeddingGemma 2 is what transformers says of it, live. Needs torch."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracle.make_embedding_gemma2 import FILE, model, said

pytestmark = pytest.mark.oracle
pytest.importorskip("torch", reason="torch is not installed; `nox -s oracle` installs it")
transformers = pytest.importorskip("transformers", reason="transformers is not installed; `nox -s oracle` installs it")
if not hasattr(transformers, "EmbeddingGemma2Model"):
    pytest.skip("this transformers has no EmbeddingGemma 2; 5.24 has", allow_module_level=True)


def test_the_stored_numbers_are_transformers() -> None:
    """Of a text, of clips and an image, and of texts with them: all within 1e-5."""
    stored, found = np.load(FILE), said(model())
    assert set(stored) == {*found, "config", "shapes"}
    for name, array in found.items():
        assert stored[name].shape == array.shape and np.abs(stored[name] - array).max() < 1e-5, name
