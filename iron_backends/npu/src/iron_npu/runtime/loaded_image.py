"""`LoadedImage`: an image with the files that were built of it, on the device."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path

import numpy as np

from iron_core.graph.signature import Signature
from iron_core.image.parameters import Parameter
from iron_core.image.plan import Plan
from iron_npu.errors import ArtifactError
from iron_npu.image.image import Dispatch, Image
from iron_npu.runtime.device import Npu
from iron_npu.runtime.loaded import LoadedElf, LoadedFile, LoadedXclbin
from iron_npu.runtime.words import check_table
from iron_npu.tools.request import Built, Stream

#: Makes the instructions of a dynamic stream for a call's scalars, where mlir-aie's tools and a C++ compiler are.
StreamMaker = Callable[[Stream, tuple[int, ...]], bytes]

#: Streams of one sequence that are kept, by their scalars.
KEPT = 16


class LoadedImage:
    """plan: what it is of. known: by path, the files that are loaded already; what is new is put there."""

    def __init__(
        self,
        npu: Npu,
        plan: Plan,
        image: Image,
        built: Sequence[Built],
        streams: StreamMaker,
        known: MutableMapping[Path, LoadedFile],
    ) -> None:
        self.plan = plan
        self.image = image
        self.built = list(built)
        self._make = streams
        self._streams: dict[tuple[int, int, str], dict[tuple[int, ...], bytes]] = {}
        self.files: list[LoadedFile] = []
        for binary, one in zip(image.binaries, self.built, strict=True):
            loaded = known.get(one.file)
            if loaded is None:
                kind = LoadedElf if binary.format == "elf" else LoadedXclbin
                known[one.file] = loaded = kind(npu, one.file)
            self.files.append(loaded)

    def holds(self, signature: Signature) -> bool:
        return any(version.signature == signature for version in self.image.versions)

    def elf(self, binary: int) -> LoadedElf:
        found = self.files[binary]
        assert isinstance(found, LoadedElf)
        return found

    def xclbin(self, binary: int) -> LoadedXclbin:
        found = self.files[binary]
        assert isinstance(found, LoadedXclbin)
        return found

    def kernel(self, dispatch: Dispatch) -> str:
        return self.image.binaries[dispatch.binary].kernels[dispatch.kernel].name

    def check(self, binary: int, words: Sequence[Parameter]) -> None:
        """ArtifactError where an ELF's scratchpad is not the image's."""
        check_table(self.built[binary].parameters, words)

    def stream(self, dispatch: Dispatch, scalars: tuple[int, ...]) -> bytes:
        """The instructions of a dispatch with these scalars."""
        known = self._streams.setdefault((dispatch.binary, dispatch.kernel, dispatch.sequence), {})
        if scalars not in known:
            file = self.built[dispatch.binary].stream(dispatch.kernel, dispatch.sequence)
            if bool(scalars) and not file.dynamic:
                raise ArtifactError(f"{file.path}: it takes no scalars, and step {dispatch.step} has {len(scalars)}.")
            made = self._make(file, scalars) if file.dynamic else file.path.read_bytes()
            if len(made) % np.dtype(np.uint32).itemsize or not made:
                raise ArtifactError(f"{file.path}: {len(made)} bytes are no stream of 32-bit words. Build it again.")
            while len(known) >= KEPT:
                known.pop(next(iter(known)))
            known[scalars] = made
        return known[scalars]
