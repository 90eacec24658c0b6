"""What every device with an array keeps, as tests to inherit."""

from __future__ import annotations

import pickle
from typing import Any, ClassVar

import attrs
import numpy as np
import pytest

from iron_core.array.build import build
from iron_core.array.fit import fit
from iron_core.backends import choose
from iron_core.compiled.operator_image import OperatorImage
from iron_core.declare.formats import as_format
from iron_core.devices import Device, TileKind, current_device, device, using_device
from iron_core.errors import FormatError, IronError, UnsupportedError
from iron_core.plugins.registry import registry


class DeviceConformance:
    """Set `device`, one with an array.

        class TestWide(DeviceConformance):
            device = WIDE
            name = "acme_npu"           # as it is registered

    name: what it is registered as; `dev=` finds it by that, and what runs on it is skipped where there is none. operator: the name of an
    elementwise one, with an array, that is tried on it.
    """

    device: ClassVar[Device]
    name: ClassVar[str] = ""
    operator: ClassVar[str] = "ReLU"

    @property
    def tiles(self) -> dict[str, TileKind]:
        """Those that it has, by kind."""
        found = dict(core=self.device.core, memtile=self.device.memtile, shim=self.device.shim)
        return {kind: tile for kind, tile in found.items() if tile is not None}

    def op(self, size: int = 4096) -> Any:
        """The operator that is tried; skips the test where it is not installed."""
        if self.operator not in registry().names("operators"):
            pytest.skip(f"{self.operator} is not installed")
        return registry().load("operators", self.operator)(size=size)

    def registered(self) -> None:
        """Skips the test where nobody says what the device is called: a design holds its name."""
        if not self.name:
            pytest.skip("name = 'acme_npu' says what it is registered as")

    def image(self, backend: str, op: Any) -> OperatorImage:
        """The operator on a backend and this device; skips the test where the backend is not here."""
        self.registered()
        if backend not in choose.names():
            pytest.skip(f"{backend} is not installed")
        return OperatorImage(op, backend=backend, dev=self.name)

    # -- numbers --------------------------------------------------------------------------------------

    def test_it_is_a_device(self) -> None:
        """A Device with a name of one word, a family and an architecture."""
        assert isinstance(self.device, Device)
        assert self.device.name and not set(self.device.name) & set(" \n") and str(self.device) == self.device.name
        assert self.device.family and self.device.arch

    def test_it_is_a_value(self) -> None:
        """It cannot be changed; it hashes, and pickles to an equal one."""
        assert pickle.loads(pickle.dumps(self.device)) == self.device and isinstance(hash(self.device), int)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            self.device.columns = 1  # type: ignore[misc]

    def test_it_has_an_array(self) -> None:
        """Columns and rows of cores, and tiles of all three kinds."""
        assert self.device.is_npu and self.device.columns > 0 and self.device.core_rows > 0
        assert self.device.cores == self.device.columns * self.device.core_rows
        assert set(self.tiles) == {"core", "memtile", "shim"}

    def test_its_memories_are_bytes(self) -> None:
        """Cores and memory tiles have memory, in whole words; a shim has none; a core has program memory."""
        assert self.tiles["core"].memory > 0 and self.tiles["memtile"].memory > 0 and self.tiles["shim"].memory == 0
        assert all(tile.memory % 4 == 0 for tile in self.tiles.values())
        assert self.device.program_memory > 0

    def test_its_tiles_move_data(self) -> None:
        """Each has channels, descriptors, locks and dimensions to walk."""
        for kind, tile in self.tiles.items():
            assert min(tile.channels, tile.descriptors, tile.locks, tile.dims) > 0, kind

    def test_its_descriptors_have_fields(self) -> None:
        """A size and a step have bits, fewer than a register's 32."""
        for kind, tile in self.tiles.items():
            assert 0 < tile.wrap_bits < 32 and 0 < tile.step_bits <= 32, kind

    def test_its_rates_are_rates(self) -> None:
        """Bytes of a stream in a cycle, megahertz and gigabytes a second, all above zero."""
        assert self.device.stream_bytes > 0 and self.device.clock_mhz > 0 and self.device.read_gbs > 0

    def test_its_reads_are_within_its_streams(self) -> None:
        """All shims' streams at the array's clock are no slower than what the array is said to read."""
        most = self.device.columns * self.tiles["shim"].channels * self.device.stream_bytes * self.device.clock_mhz / 1000
        assert self.device.read_gbs <= most

    def test_its_products_are_of_dtypes(self) -> None:
        """Multiply-accumulates of a core in a cycle are given by dtypes or formats there are, each once."""
        names = [name for name, _ in self.device.macs]
        assert len(set(names)) == len(names) and all(many > 0 for _, many in self.device.macs)
        for name in names:
            try:
                as_format(name)
            except FormatError:
                assert np.dtype(name).kind in "iu", name

    def test_its_words_and_contexts_are_counted(self) -> None:
        """A full ELF is one where there are words to patch; one context at least can be alive."""
        assert self.device.scratchpad_words >= 0 and self.device.full_elf == (self.device.scratchpad_words > 0)
        assert self.device.contexts >= 1

    # -- where a device is named ----------------------------------------------------------------------

    def test_it_is_found_by_its_name(self) -> None:
        """`dev=` takes it by the name that it is registered as."""
        self.registered()
        assert self.device.name == self.name and device(self.name) == self.device

    def test_it_is_found_by_itself(self) -> None:
        """Where a device is named, the object may be given; inside `using_device` it is meant."""
        assert device(self.device) is self.device
        with using_device(self.device):
            assert current_device() is self.device

    # -- arrays ---------------------------------------------------------------------------------------

    def test_an_array_fits_it(self) -> None:
        """An elementwise operator's array is built, placed and routed, on columns that the device has."""
        self.registered()
        op = self.op()
        design = build(op, self.device).design
        places = fit(design)
        assert places and max(column for column, _ in places.values()) < self.device.columns

    def test_resolving_keeps_to_its_columns(self) -> None:
        """What an operator chooses for it is no more than there is."""
        columns = getattr(self.op().resolved(self.device), "num_aie_columns", 1)
        assert 1 <= columns <= self.device.columns

    def test_an_array_explains_itself(self) -> None:
        """`explain` names the operator and the device."""
        self.registered()
        said = self.op().explain(self.device)
        assert self.operator in said and self.device.name in said

    def test_what_has_no_room_is_refused(self) -> None:
        """More columns than there are: an error that names the keyword."""
        cls = type(self.op())
        with pytest.raises(IronError, match="num_aie_columns"):
            build(cls(size=4096 * (self.device.columns + 1), num_aie_columns=self.device.columns + 1), self.device)

    def test_a_graph_is_planned_for_it(self) -> None:
        """`null` plans and packages, and runs nothing."""
        image = self.image("null", self.op())
        with pytest.raises(UnsupportedError):
            image(np.zeros(4096, image.op.x.dtype))

    def test_an_array_is_simulated(self) -> None:
        """Every number of the composed tile references, in every bit, and the reference's within its gate."""
        op = self.op()
        image = self.image("sim", op)
        x = type(op).test.draw(op, np.random.default_rng(0))["x"]
        got, resolved = image(x), op.resolved(self.device)
        assert got.tobytes() == resolved.composed(x).tobytes()
        assert resolved.array_check(got, op.reference(x), x).compared == got.size

    def test_an_array_of_more_rows_is_the_same_array(self) -> None:
        """No extent is built into it."""
        assert build(self.op(), self.device).design.array is build(self.op(65536), self.device).design.array
