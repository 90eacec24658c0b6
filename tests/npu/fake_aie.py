"""A stand-in for mlir-aie's Python: `aie.iron.kernels` with a few factories, whose sources and contracts are as the real ones have them.

`install(folder)` writes the package and gives the folder that holds it. What factories give follows the current device.
"""

from __future__ import annotations

from pathlib import Path

INIT = """
_current = None
def get_current_device():
    return _current
def set_current_device(device):
    global _current
    _current = device
"""
DEVICE = """
class Device:
    def __init__(self, name):
        self.name = name
def from_name(name, n_cols=None):
    return Device(name)
"""
KERNEL = """
class ObjectFile:
    def __init__(self, prefix):
        self.symbol_prefix = prefix
class Contract:
    def __init__(self, **said):
        self.__dict__.update(said)
class ExternalFunction:
    def __init__(self, name, arg_types, source_file=None, source_string=None, include_dirs=(), compile_flags=(), prefix=None,
                 contract=None):
        self.object_file = ObjectFile(prefix)
        self._name = f"{prefix}_{name}" if prefix else name
        self._arg_types, self.contract = list(arg_types), contract
        self._source_file, self._source_string = source_file, source_string
        self._include_dirs, self._compile_flags = list(include_dirs), list(compile_flags)
    def arg_types(self):
        return list(self._arg_types)
class In: pass
class Out: pass
class InOut: pass
class Param: pass
"""
KERNELS = """
import os
import numpy as np
from pathlib import Path
import aie.iron
from aie.iron.kernel import Contract, ExternalFunction, In, InOut, Out, Param

def _line(n, dtype):
    return np.ndarray[(n,), np.dtype[dtype]]

class eltwise:
    @staticmethod
    def double_sized(tile_size=1024, dtype=np.int32):
        arch = "aie2p" if aie.iron.get_current_device().name == "npu2" else "aie2"
        contract = Contract(roles=(In, Out, Param), stack_bytes=512, unsupported=(), reference=lambda x, n: 2 * x,
                            tolerance=Contract(exact=True))
        if tile_size % 16:
            raise ValueError(f"tile_size={tile_size} is no multiple of 16")
        types = [_line(tile_size, dtype), _line(tile_size, dtype), np.int32]
        HERE = Path(os.environ.get("MLIR_AIE_KERNEL_SOURCES", Path(__file__).parent))
        fn = ExternalFunction(f"double_{np.dtype(dtype).name}", types, source_file=str(HERE / arch / "double.cc"),
                              include_dirs=[str(HERE / "include")], compile_flags=["-DTILE=%d" % tile_size], prefix="1a2b3c4d",
                              contract=contract)
        fn.halve = ExternalFunction("halve", types, source_string="", prefix="1a2b3c4d", contract=contract)
        return fn
    @staticmethod
    def old(tile_size=64):
        return ExternalFunction("old", [], source_string='extern "C" void old() {}')
    @staticmethod
    def binary(tile_size=64):
        return object.__new__(type("Bound", (), {"_name": "binary", "_arg_types": None}))
"""


def install(folder: Path) -> Path:
    """The folder to put on Python's path."""
    iron = folder / "aie" / "iron"
    files = {
        folder / "aie" / "__init__.py": "",
        iron / "__init__.py": INIT,
        iron / "device.py": DEVICE,
        iron / "kernel.py": KERNEL,
        iron / "kernels" / "__init__.py": KERNELS,
        iron / "kernels" / "aie2p" / "double.cc": '#include "both.h"\n// double of aie2p\n',
        iron / "kernels" / "aie2" / "double.cc": '#include "both.h"\n// double of aie2\n',
        iron / "kernels" / "include" / "both.h": "// both\n",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


#: `aie.iron.kernels` with a factory for every name: what a catalog asks for is there, says nothing of itself, and has a source.
ANY = """
from aie.iron.kernel import ExternalFunction

class Names:
    def __init__(self, path):
        self._path = path
        self.__name__ = path
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Names(f"{self._path}.{name}")
    def __call__(self, **keywords):
        name = self._path.rpartition(".")[2]
        return ExternalFunction(name, [], source_string=f"// {self._path} {sorted(keywords.items())}\\\\n", prefix="0f")

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Names(f"aie.iron.kernels.{name}")
"""


def install_any(folder: Path) -> Path:
    """As `install`, of an mlir-aie that has every kernel."""
    install(folder)
    (folder / "aie" / "iron" / "kernels" / "__init__.py").write_text(ANY)
    return folder
