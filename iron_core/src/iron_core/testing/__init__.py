"""What every operator, backend, format, model and device keeps, as tests to inherit in one's own:

    from iron_core.testing import OperatorConformance

    class TestSquaredReLU(OperatorConformance):
        operator = SquaredReLU

It needs pytest, which nothing else of Iron does: install `iron-core[testing]`.
"""

from __future__ import annotations

from iron_core.lazy_names import lazy_names

try:
    import pytest
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("iron_core.testing needs pytest: install it, or iron-core with its testing extra.") from error

_HOME = {
    "BackendConformance": "backend_conformance",
    "DeviceConformance": "device_conformance",
    "FormatConformance": "format_conformance",
    "ModelConformance": "model_conformance",
    "OperatorConformance": "operator_conformance",
    "OperatorContract": "operator_contract",
    "OperatorRuns": "operator_runs",
    "OperatorArrays": "operator_arrays",
}

#: What a failing assertion of these compared is shown, as of the author's own.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _HOME.values()))

__all__ = sorted(_HOME)
__getattr__, __dir__ = lazy_names(__name__, _HOME)
