"""What torch.save pickled, as plain data: a reader of the few pickle instructions it uses. Nothing is imported or called.

A pickle is a program for a stack machine, and the usual one imports what the program names and calls it. This one knows
numbers, strings, containers, storages and tensors; a name is looked up in a table of a dozen, and a call of one of them
makes a record. Everything else is refused by name.
"""

from __future__ import annotations

import struct
from typing import Any

import attrs
import numpy as np

from iron_core import bfloat16
from iron_core.errors import CheckpointError

#: Bytes of the pickle, and instructions in it; a model of ten thousand tensors stays below.
MOST_BYTES, MOST_STEPS = 1 << 24, 1 << 20
#: Storage classes of torch by name.
STORAGES = {
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": bfloat16,
}
_TENSOR, _PARAMETER, _ORDERED = "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections OrderedDict"
#: How tensors are made of dtypes that have no storage class of their own: the dtype is the seventh argument.
_NEW_TENSOR, _BYTES = "torch._utils _rebuild_tensor_v3", "torch.storage UntypedStorage"
_NEW_DTYPES = {
    f"torch {name}"
    for name in (
        "uint16", "uint32", "uint64", "complex32", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
        "float4_e2m1fn_x2",
    )
}  # fmt: skip
_OTHER_STORAGES = {
    f"torch {name}Storage" for name in ("Double", "Long", "Int", "Short", "Char", "Byte", "Bool", "ComplexFloat", "ComplexDouble")
}
_NAMES = {
    _TENSOR, _NEW_TENSOR, _PARAMETER, _ORDERED, _BYTES, *(f"torch {name}" for name in STORAGES), *_OTHER_STORAGES, *_NEW_DTYPES,
}  # fmt: skip


@attrs.frozen
class Named:
    """A name the pickle asked for."""

    name: str


@attrs.frozen
class StoredTensor:
    """A tensor of a storage: entry `key` of the archive, `numel` numbers of a `kind` (a storage class, or a dtype that has
    none); the tensor's begin at `offset` with these strides."""

    key: str
    kind: str
    numel: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def axes(self) -> list[tuple[int, int]]:
        """(stride, length) of each axis that has more than one number, from the closest numbers to the farthest."""
        return sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1)


class _Mark:
    """Where a list of arguments begins."""


_MARK = _Mark()


def read(raw: bytes | np.ndarray, where: str) -> Any:
    """The object a pickle describes: dicts, lists, tuples, strings, numbers and StoredTensor. CheckpointError for any other."""
    if len(raw) > MOST_BYTES:
        raise CheckpointError(f"{where}: a pickle of {len(raw)} bytes; legal: up to {MOST_BYTES}.")
    try:
        return _Machine(bytes(raw), where).run()
    except (IndexError, struct.error, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{where}: the pickle is damaged ({type(error).__name__}).") from None


class _Machine:
    def __init__(self, raw: bytes, where: str) -> None:
        self.raw, self.where, self.at = raw, where, 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        actions = _ACTIONS
        for _ in range(MOST_STEPS):
            code = self.raw[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            action = actions.get(code)
            if action is None:
                raise CheckpointError(f"{self.where}: pickle instruction 0x{code:02x}, which no file of tensors needs; refused.")
            action(self)
        raise CheckpointError(f"{self.where}: a pickle of more than {MOST_STEPS} instructions; refused.")

    def unpack(self, code: str) -> Any:
        (value,) = struct.unpack_from(code, self.raw, self.at)
        self.at += struct.calcsize(code)
        return value

    def take(self, count: int) -> bytes:
        found = self.raw[self.at : self.at + count]
        if len(found) != count:
            raise IndexError(count)
        self.at += count
        return found

    def line(self) -> str:
        end = self.raw.index(b"\n", self.at, self.at + 512)
        found = self.raw[self.at : end].decode("ascii")
        self.at = end + 1
        return found

    def since_mark(self) -> list[Any]:
        for i in range(len(self.stack) - 1, -1, -1):
            if self.stack[i] is _MARK:
                found = self.stack[i + 1 :]
                del self.stack[i:]
                return found
        raise IndexError("mark")

    def name(self, module: str, name: str) -> None:
        found = f"{module} {name}"
        if found in _NAMES:
            self.stack.append(Named(found))
            return
        shown = f"{module}.{name}"[:80]
        raise CheckpointError(
            f"{self.where}: the pickle names {shown if shown.isprintable() else repr(shown)}, which is no part of a tensor; "
            "nothing of it was run."
        )

    def storage(self) -> None:
        """A persistent id: ("storage", class, key, device, numel)."""
        word, kind, key, _, numel = self.stack.pop()
        if word != "storage" or not isinstance(kind, Named) or not isinstance(key, str) or type(numel) is not int or numel < 0:
            raise ValueError("storage")
        self.stack.append((kind.name.removeprefix("torch "), key, numel))

    def call(self) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        name = called.name if isinstance(called, Named) else None
        if not isinstance(arguments, tuple):
            raise ValueError("arguments")
        if name == _ORDERED and not arguments:
            self.stack.append({})
        elif name == _PARAMETER:
            self.stack.append(arguments[0])
        elif name in (_TENSOR, _NEW_TENSOR):
            (kind, key, numel), offset, shape, strides = arguments[:4]
            if name == _NEW_TENSOR:
                dtype = arguments[6]
                if not isinstance(dtype, Named) or dtype.name not in _NEW_DTYPES:
                    raise ValueError("dtype")
                kind = dtype.name.removeprefix("torch ")
            if not isinstance(key, str) or not all(type(n) is int and 0 <= n < 1 << 48 for n in (numel, offset, *shape, *strides)):
                raise ValueError("tensor")
            if len(shape) != len(strides) or len(shape) > 8:
                raise ValueError("tensor")
            self.stack.append(StoredTensor(key, kind, numel, offset, tuple(shape), tuple(strides)))
        else:
            raise CheckpointError(f"{self.where}: the pickle calls {name or 'something'} as no tensor needs; nothing was run.")

    def build(self) -> None:
        """State of an object: torch gives ordered dicts a `_metadata`, which says nothing of the tensors."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise CheckpointError(f"{self.where}: the pickle sets the state of something that is no dict; refused.")

    def store(self, pairs: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, dict) or len(pairs) % 2:
            raise ValueError("dict")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, (str, int)):  # others hash for as long as they like
                raise ValueError("key")
            target[key] = value

    def extend(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ValueError("list")
        self.stack[-1].extend(values)

    def group(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError(count)
        found = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        self.stack.append(tuple(found))

    def whole(self, count: int) -> None:
        if count > 8:
            raise ValueError("a number beyond 64 bits")
        self.stack.append(int.from_bytes(self.take(count), "little", signed=True))

    def text(self, count: int) -> None:
        self.stack.append(self.take(count).decode("utf-8"))

    def named_on_stack(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("name")
        self.name(module, name)

    def keep(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def pair(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.store([key, value])


_ACTIONS: dict[int, Any] = {
    ord(code): action
    for code, action in {
        "\x80": lambda m: m.unpack("<B"),  # PROTO
        "\x95": lambda m: m.unpack("<Q"),  # FRAME
        "(": lambda m: m.stack.append(_MARK),
        "0": lambda m: m.stack.pop(),
        "N": lambda m: m.stack.append(None),
        "\x88": lambda m: m.stack.append(True),
        "\x89": lambda m: m.stack.append(False),
        "J": lambda m: m.stack.append(m.unpack("<i")),
        "K": lambda m: m.stack.append(m.unpack("<B")),
        "M": lambda m: m.stack.append(m.unpack("<H")),
        "\x8a": lambda m: m.whole(m.unpack("<B")),  # LONG1
        "G": lambda m: m.stack.append(m.unpack(">d")),
        "X": lambda m: m.text(m.unpack("<I")),
        "\x8c": lambda m: m.text(m.unpack("<B")),
        "}": lambda m: m.stack.append({}),
        "]": lambda m: m.stack.append([]),
        ")": lambda m: m.stack.append(()),
        "t": lambda m: m.stack.append(tuple(m.since_mark())),
        "\x85": lambda m: m.group(1),
        "\x86": lambda m: m.group(2),
        "\x87": lambda m: m.group(3),
        "s": lambda m: m.pair(),
        "u": lambda m: m.store(m.since_mark()),
        "a": lambda m: m.extend([m.stack.pop()]),
        "e": lambda m: m.extend(m.since_mark()),
        "q": lambda m: m.keep(m.unpack("<B")),
        "r": lambda m: m.keep(m.unpack("<I")),
        "\x94": lambda m: m.keep(len(m.memo)),  # MEMOIZE
        "h": lambda m: m.stack.append(m.memo[m.unpack("<B")]),
        "j": lambda m: m.stack.append(m.memo[m.unpack("<I")]),
        "c": lambda m: m.name(m.line(), m.line()),
        "\x93": lambda m: m.named_on_stack(),
        "Q": lambda m: m.storage(),
        "R": lambda m: m.call(),
        "b": lambda m: m.build(),
    }.items()
}
