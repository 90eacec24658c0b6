"""Core programs: one `aie.core` per worker, its recorded statements as scf, arith, memref and calls."""

from __future__ import annotations

from collections.abc import Iterator

from iron_core.array.design import ArrayDesign, CoreData
from iron_core.array.expression import COMPARISON, Binary, Const, Expr, Var, binary
from iron_core.array.program import (
    Acquire,
    AcquireLock,
    Block,
    Call,
    Element,
    For,
    If,
    Load,
    Local,
    Memory,
    RaiseBarrier,
    Release,
    ReleaseLock,
    SetRounding,
    Statement,
    Store,
    Subview,
    WaitBarrier,
    walk,
)
from iron_core.declare.objects import ObjectType
from iron_core.devices import WORD_SHIFT
from iron_core.errors import DeclarationError
from iron_npu.mlir.kernels import Kernels, rounding_symbol, scalar_type
from iron_npu.mlir.text import Writer, element, memref, number, view_type

#: A core's program repeats this often: as good as forever.
FOREVER = 9223372036854775807

_ARITHMETIC = {"add": "addi", "sub": "subi", "mul": "muli", "div": "divsi", "rem": "remsi", "min": "minsi", "max": "maxsi"}
_PREDICATES = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_PORTS = {"produce": "Produce", "consume": "Consume"}


def word_buffers(array: ArrayDesign) -> frozenset[str]:
    """Buffers whose numbers a sequence may write per call. All their numbers are kept shifted by WORD_SHIFT."""
    return frozenset(buffer for value in array.values for buffer, _ in value.words)


def print_core(writer: Writer, array: ArrayDesign, core: CoreData, tile: str, names: dict[str, str], kernels: Kernels) -> None:
    """The `aie.core` of a worker. `names`: SSA names of the array's buffers and locks."""
    head = f"{writer.fresh(core.name)} = aie.core({tile})"
    with writer.apart(), writer.block(head, f"}} {{stack_size = {core.stack} : i32}}"):
        printer = _Core(writer, array, core, names, kernels)
        if core.forever:
            zero, one, end = (writer.constant(n, "index") for n in (0, 1, FOREVER))
            with writer.block(f"scf.for {writer.fresh('turn')} = {zero} to {end} step {one}"):
                printer.block(core.program)
        else:
            printer.block(core.program)
        writer.line("aie.end")


class _Core:
    """The statements of one program."""

    def __init__(self, writer: Writer, array: ArrayDesign, core: CoreData, names: dict[str, str], kernels: Kernels) -> None:
        self.writer = writer
        self.array = array
        self.core = core
        self.names = names
        self.kernels = kernels
        self.words = word_buffers(array)
        self.used = {(m.acquired, m.index) for m in _memories(core.program) if isinstance(m, Element)}
        #: Variable -> SSA name and type ("index" or "i32").
        self.variables: dict[str, tuple[str, str]] = {}
        #: (acquisition, index) -> SSA name of the object.
        self.objects: dict[tuple[str, int], str] = {}

    def block(self, statements: Block) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, s: Statement) -> None:
        w = self.writer
        match s:
            case Acquire():
                self.acquire(s)
            case Release(fifo, port, count):
                w.line(f"aie.objectfifo.release @{fifo}({_PORTS[port]}, {count})")
            case Call():
                self.call(s)
            case For(var, start, stop, step, body):
                bounds = f"{self.expr(start, 'index')} to {self.expr(stop, 'index')} step {w.constant(step, 'index')}"
                name = w.fresh(var)
                self.variables[var] = name, "index"
                with w.block(f"scf.for {name} = {bounds}"):
                    self.block(body)
            case If(condition, then, otherwise):
                w.line(f"scf.if {self.condition(condition)} {{")
                with w.inner():
                    self.block(then)
                if otherwise:
                    w.line("} else {")
                    with w.inner():
                        self.block(otherwise)
                w.line("}")
            case Load():
                self.load(s)
            case Store():
                self.store(s)
            case WaitBarrier(lock, value):
                self.lock(lock, "Acquire", value)
            case AcquireLock(lock, value):
                self.lock(lock, "AcquireGreaterEqual", value)
            case RaiseBarrier(lock, value) | ReleaseLock(lock, value):
                self.lock(lock, "Release", value)
            case SetRounding(mode):
                w.line(f"func.call @{rounding_symbol(mode)}() : () -> ()")

    def lock(self, lock: str, action: str, value: int) -> None:
        self.writer.line(f"aie.use_lock({self.names[lock]}, {action}, {self.writer.constant(value, 'i32')})")

    def acquire(self, s: Acquire) -> None:
        fifo = self.array.fifo(s.fifo)
        kind = fifo.type if s.port == "produce" else fifo.type_at(1)
        held = self.writer.value(s.name, f"aie.objectfifo.acquire @{s.fifo}({_PORTS[s.port]}, {s.count}) : {view_type(kind)}")
        for i in range(s.count):
            if (s.name, i) in self.used:
                text = f"aie.objectfifo.subview.access {held}[{i}] : {view_type(kind)} -> {memref(kind)}"
                self.objects[s.name, i] = self.writer.value(f"{s.fifo}_{i}", text)

    # -- memory ------------------------------------------------------------------------------------

    def base(self, memory: Element | Local) -> tuple[str, ObjectType]:
        """SSA name and printed type of a whole object or buffer."""
        if isinstance(memory, Element):
            try:
                return self.objects[memory.acquired, memory.index], memory.type
            except KeyError:
                raise DeclarationError(f"worker {self.core.name} uses an object of {memory.acquired} before it holds it.") from None
        return self.names[memory.buffer], printed_type(self.array, memory.buffer)

    def place(self, memory: Memory, index: Expr) -> tuple[str, ObjectType, str]:
        """The memref, its type, and an index in it."""
        if isinstance(memory, Subview):
            name, kind = self.base(memory.base)
            return name, kind, self.expr(binary("add", memory.offset, index), "index")
        name, kind = self.base(memory)
        return name, kind, self.expr(index, "index")

    def load(self, s: Load) -> None:
        name, kind, at = self.place(s.memory, s.index)
        read = self.writer.value(s.name, f"memref.load {name}[{at}] : {memref(kind)}")
        width = element(kind.dtype_name)
        if width != "i32":
            widen = "extui" if kind.dtype.kind == "u" else "extsi"
            read = self.writer.value(s.name, f"arith.{widen} {read} : {width} to i32")
        elif self.holds_words(s.memory):
            shift = self.writer.constant(WORD_SHIFT, "i32")
            read = self.writer.value(s.name, f"arith.shrui {read}, {shift} : i32")
        self.variables[s.name] = read, "i32"

    def store(self, s: Store) -> None:
        name, kind, at = self.place(s.memory, s.index)
        if self.holds_words(s.memory):
            raise DeclarationError(f"worker {self.core.name} writes {s.memory}, whose numbers the sequence writes per call.")
        value, width = self.expr(s.value, "i32"), element(kind.dtype_name)
        if width != "i32":
            value = self.writer.value("narrow", f"arith.trunci {value} : i32 to {width}")
        self.writer.line(f"memref.store {value}, {name}[{at}] : {memref(kind)}")

    def holds_words(self, memory: Memory) -> bool:
        base = memory.base if isinstance(memory, Subview) else memory
        return isinstance(base, Local) and base.buffer in self.words

    # -- calls ---------------------------------------------------------------------------------------

    def call(self, s: Call) -> None:
        data = self.array.kernel(s.kernel)
        values: list[str] = []
        kinds: list[str] = []
        bases: list[ObjectType | None] = []
        for given, declared in zip(s.args, data.arguments, strict=True):
            if isinstance(declared, str):
                assert isinstance(given, Expr)
                values.append(self.scalar(given, declared, s.kernel))
                kinds.append(scalar_type(declared))
                bases.append(None)
                continue
            assert not isinstance(given, Expr)
            if self.holds_words(given):
                raise DeclarationError(f"kernel {s.kernel} is given a buffer of per-call words; read them in the core function.")
            inside = isinstance(given, Subview) and not (given.offset == Const(0) and given.base.type.elements == declared.elements)
            name, kind = self.base(given.base if isinstance(given, Subview) else given)
            values.append(name)
            kinds.append(memref(kind))
            bases.append(kind if inside else None)
            if inside:
                assert isinstance(given, Subview)
                values.append(self.expr(given.offset, "i32"))
                kinds.append("i32")
        symbol = self.kernels.callee(data, tuple(bases))
        self.writer.line(f"func.call @{symbol}({', '.join(values)}) : ({', '.join(kinds)}) -> ()")

    def scalar(self, given: Expr, dtype_name: str, kernel: str) -> str:
        kind = scalar_type(dtype_name)
        if kind == "i32":
            return self.expr(given, kind)
        if kind.startswith("i"):
            if isinstance(given, Const):
                return self.writer.constant(int(given.value), kind)
            widen = "trunci" if int(kind[1:]) < 32 else "extsi"
            return self.writer.value("scalar", f"arith.{widen} {self.expr(given, 'i32')} : i32 to {kind}")
        if isinstance(given, Const):
            return self.writer.once(f"real_{kind}", f"arith.constant {number(given.value, dtype_name)} : {kind}")
        raise DeclarationError(f"kernel {kernel}: {given} as a {dtype_name} scalar; legal: a number, or a whole-number scalar.")

    # -- expressions ---------------------------------------------------------------------------------

    def expr(self, e: Expr, kind: str) -> str:
        """SSA name of an expression as "index" or "i32"."""
        w = self.writer
        if isinstance(e, Const):
            if e.value != int(e.value):
                raise DeclarationError(f"worker {self.core.name} computes with {e.value}; legal: whole numbers.")
            return w.constant(int(e.value), kind)
        if isinstance(e, Var):
            try:
                name, have = self.variables[e.name]
            except KeyError:
                raise DeclarationError(f"worker {self.core.name} uses {e.name} outside of its loop.") from None
            return name if have == kind else w.once(f"{e.name}_{kind}", f"arith.index_cast {name} : {have} to {kind}")
        assert isinstance(e, Binary)
        if e.op in COMPARISON:
            flag = self.condition(e)
            return w.value("flag", f"arith.extui {flag} : i1 to i32" if kind == "i32" else f"arith.index_castui {flag} : i1 to index")
        left, right = self.expr(e.left, kind), self.expr(e.right, kind)
        return w.once(e.op, f"arith.{_ARITHMETIC[e.op]} {left}, {right} : {kind}")

    def condition(self, e: Expr) -> str:
        """SSA name of an expression as i1."""
        if not (isinstance(e, Binary) and e.op in COMPARISON):
            e = Binary("ne", e, Const(0))
        left, right = self.expr(e.left, "i32"), self.expr(e.right, "i32")
        return self.writer.once(e.op, f"arith.cmpi {_PREDICATES[e.op]}, {left}, {right} : i32")


def printed_type(array: ArrayDesign, buffer: str) -> ObjectType:
    """A buffer's type in the text. Setting a per-call word touches the number behind it too, so there is one more."""
    kind = array.buffer(buffer).type
    if buffer not in word_buffers(array):
        return kind
    if kind.dtype_name not in ("int32", "uint32"):
        raise DeclarationError(f"buffer {buffer} of {kind} takes per-call words; legal: int32 or uint32.")
    return ObjectType((kind.elements + 1,), kind.dtype_name)


def _memories(program: Block) -> Iterator[Memory]:
    for statement in walk(program):
        if isinstance(statement, (Load, Store)):
            yield _whole(statement.memory)
        elif isinstance(statement, Call):
            yield from (_whole(arg) for arg in statement.args if not isinstance(arg, Expr))


def _whole(memory: Memory) -> Memory:
    return memory.base if isinstance(memory, Subview) else memory
