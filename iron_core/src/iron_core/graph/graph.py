"""`Graph`: a class whose `body()` calls operators on handles."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

import attrs
import numpy as np

import iron_core.turn  # noqa: F401  # before what compile() imports: a child forked meanwhile imports it again
from iron_core.declare.affine import Affine
from iron_core.declare.authored import authored
from iron_core.declare.formats import Format, PackedArray, as_format, bfloat16
from iron_core.declare.value import PerCall
from iron_core.errors import CallError, DeclarationError, FormatError, IronError, ShapeError, TraceError
from iron_core.graph.call import sort_call
from iron_core.graph.carry import Carry
from iron_core.graph.current import current
from iron_core.graph.handle import Handle
from iron_core.graph.held import holds, names
from iron_core.graph.reference import run_graph, states_of
from iron_core.graph.signature import NUMBER, Signature, numbers_of
from iron_core.graph.traced import CarryOut, PerCallValue, Region, TracedGraph
from iron_core.graph.tracer import Tracer
from iron_core.graph.weight import State, Weight, dimensions, is_array


@attrs.frozen
class Body:
    """The parameters of a body: inputs (and which may be None), per-call values."""

    inputs: tuple[str, ...]
    optional: frozenset[str]
    values: tuple[PerCallValue, ...]

    @property
    def dispatch(self) -> dict[str, PerCallValue]:
        """The `DispatchTime` values by name: a version is of one number of each."""
        return {value.name: value for value in self.values if value.kind == "dispatch"}

    @classmethod
    def of(cls, graph: type) -> Body:
        """Read `graph.body`'s signature; DeclarationError for one that cannot be traced."""
        where = f"{graph.__name__}.body"
        function = graph.body  # type: ignore[attr-defined]
        if function is Graph.body:
            raise DeclarationError(f"{graph.__name__} defines no body().")
        if not inspect.isfunction(inspect.getattr_static(graph, "body")) or not inspect.signature(function).parameters:
            raise DeclarationError(f"{where}: legal: a method whose first parameter is self, as def body(self, x).")
        inputs, optional, values = [], set(), []
        for parameter in list(inspect.signature(function).parameters.values())[1:]:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise DeclarationError(f"{where}: *args and **kwargs cannot be traced; name each input.")
            if parameter.kind is parameter.KEYWORD_ONLY:
                values.append(cls._value(where, function, parameter))
                continue
            inputs.append(name)
            if parameter.default is not parameter.empty:
                if parameter.default is not None:
                    raise DeclarationError(f"{where}: input {name}={parameter.default!r}; an input defaults to None or nothing.")
                optional.add(name)
        return cls(tuple(inputs), frozenset(optional), tuple(values))

    @staticmethod
    def _value(where: str, function: Any, parameter: inspect.Parameter) -> PerCallValue:
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, dict(inspect.getclosurevars(function).nonlocals) | function.__globals__)
            except IronError as error:
                raise DeclarationError(f"{where}: {parameter.name}: {error}") from None
            except Exception as error:
                raise DeclarationError(f"{where}: the annotation of {parameter.name} does not evaluate: {error}.") from None
        if not isinstance(annotation, PerCall):
            raise DeclarationError(
                f"{where}: keyword-only {parameter.name} is a per-call value; annotate it Scratchpad[T], Carried[T] or "
                "DispatchTime[T], as in Scratchpad[np.int32]."
            )
        if parameter.default is not parameter.empty:
            raise DeclarationError(
                f"{where}: {parameter.name}={parameter.default!r}: a per-call value has no default; every call gives it."
            )
        return PerCallValue(parameter.name, annotation.kind, annotation.dtype.name)


def tensor_spec(spec: Any, name: str = "shape") -> tuple[tuple[int, ...], Format]:
    """(shape, Format) of a bare shape (bfloat16), a (shape, dtype) pair, or anything with a shape and a dtype.

    ShapeError, naming the input `name`, for what is none of these.
    """
    if isinstance(spec, PackedArray):
        return spec.shape, spec.format
    if hasattr(spec, "shape") and hasattr(spec, "dtype"):
        shape, dtype = spec.shape, spec.dtype
    elif isinstance(spec, (tuple, list)) and len(spec) == 2 and isinstance(spec[0], (tuple, list)):
        shape, dtype = spec
    else:
        shape, dtype = spec, bfloat16
    try:
        return dimensions(shape), as_format(dtype)
    except (ShapeError, FormatError) as error:
        raise type(error)(f"{name}={spec!r}: {error} A tensor is (dims) or ((dims), dtype).") from None


#: Attributes a graph keeps its compiled graphs under, and its reference's traces, states and lock.
_RUNNING = ("_compiled", "_reference_traces", "_reference_states", "_reference_turn")


class Graph:
    """Subclass it, hold weights and states as attributes, and define `body()`.

    body's positional parameters are inputs, its keyword-only ones per-call values (`n: Scratchpad[np.int32]`), what
    it returns the outputs. It is traced once per input signature.
    """

    is_iron_graph: ClassVar[bool] = True
    #: Tunables for what its calls leave open, where it is compiled by itself: a Profile, or the path of a file or a folder of profiles.
    profile: Any = None
    #: What its steps are counted under in a profile of a run; "": what those of the graph that calls it are.
    category: str = ""
    _body: ClassVar[Body]

    def __setattr__(self, name: str, value: Any) -> None:
        if "_compiled" in self.__dict__ and (holds(value) or holds(self.__dict__.get(name))):
            raise TraceError(
                f"{type(self).__name__}.{name}: the graph is compiled, and its versions would not see another tensor. "
                f"Put numbers into a weight or state with compiled.write({name!r}, array), or make another graph."
            )
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """A copy holds the same tensors; what was compiled, traced or run of the graph stays with the original."""
        return {key: item for key, item in vars(self).items() if key not in _RUNNING}

    def body(self, *inputs: Any, **values: Any) -> Any:
        """The computation; a subclass defines it."""
        raise DeclarationError(f"{type(self).__name__} defines no body().")  # `Body.of` says so before any call

    @classmethod
    def parameters(cls) -> Body:
        """The body's inputs and per-call values."""
        if "_body" not in vars(cls):
            cls._body = Body.of(cls)
        return cls._body

    @classmethod
    def signature(cls, shapes: dict[str, Any]) -> Signature:
        """The version key of these input shapes (None: not given) and of the numbers of `DispatchTime` values; CallError for
        unknown or missing ones."""
        body = cls.parameters()
        for name in shapes:
            if name not in body.inputs and name not in body.dispatch:
                inputs = ", ".join(body.inputs) or "none"
                raise CallError(f"{cls.__name__} has no input {name}. Inputs: {inputs}; a backend's options are given where it is made.")
        key = []
        for name in body.inputs:
            spec = shapes.get(name)
            if spec is not None:
                shape, format = tensor_spec(spec, name)
                key.append((name, shape, format.name))
            elif name not in body.optional:
                raise CallError(f"{cls.__name__} needs the shape of {name}: {name}=(dims) or ((dims), dtype).")
        for name, value in body.dispatch.items():
            if name not in shapes:
                legal = f"any {value.dtype}, as {name}=4"
                raise CallError(f"{cls.__name__} needs a number for {name}, a DispatchTime value: a version is of one. Legal: {legal}.")
            key.append((name, (value.number(shapes[name]),), NUMBER))
        return tuple(key)

    def __call__(self, *tensors: Any, **values: Any) -> Any:
        """Inside another body: trace into it. Outside: run, compiling with the defaults on first use.

        Inside, tensors are handles, weights or states, and per-call values expressions of the caller's.
        """
        if current() is not None:
            return self._inline(tensors, values)
        return _compile().default_compiled(self)(*tensors, **values)

    def _inline(self, tensors: tuple[Any, ...], values: dict[str, Any]) -> Any:
        tracer = current()
        assert tracer is not None
        name, body = type(self).__name__, type(self).parameters()
        given, values = sort_call(type(self), tensors, values)
        known = [v.name for v in body.values]
        if set(values) != set(known):
            raise CallError(
                f"{name} is called with {', '.join(values) or 'no values'}; its per-call values: {', '.join(known) or 'none'}."
            )
        tracer.adopt(self)
        handles = {key: tracer.handle(item) for key, item in given.items()}
        with tracer.inside(self), tracer.labelled(self.category):
            with authored(self, "body()"):
                result = self.body(*(handles.get(key) for key in body.inputs), **values)
        if isinstance(result, Carry) or (isinstance(result, tuple) and any(isinstance(r, Carry) for r in result)):
            raise TraceError(f"{name} returns iron.carry() and is called inside a graph; only the outermost graph carries.")
        return result

    def trace(self, **shapes: Any) -> TracedGraph:
        """The steps of one version. Keywords give input shapes, `(dims)` is bfloat16, `((dims), dtype)` names another; and the
        numbers of `DispatchTime` values, which the body sees as they are."""
        body = type(self).parameters()
        signature = self.signature(shapes)
        fixed = numbers_of(signature)
        tracer = Tracer(names(self), tuple(v for v in body.values if v.name not in fixed))
        with tracer.active():
            given = {name: tracer.input(name, *tensor_spec(shapes[name])) for name, _, _ in signature if name not in fixed}
            values = {v.name: fixed.get(v.name, Affine(v.name)) for v in body.values}
            with authored(self, "body()"), tracer.labelled(self.category):
                result = self.body(*[given.get(name) for name in body.inputs], **values)
        return _finish(type(self).__name__, signature, tracer, result)

    def compile(self, **options: Any) -> Any:
        """Plan, build and return a CompiledGraph. See `iron_core.compiled.compile.compile_graph` for the keywords."""
        return _compile().compile_graph(self, **options)

    def reference(self, *tensors: Any, **values: Any) -> Any:
        """Run the body in numpy through each operator's `reference()`. States are kept between calls on this graph.

        Tensors are of their own shapes, or cut to a bound of a version that was compiled; outputs come back cut.
        """
        return run_graph(self, tensors, values)

    @property
    def reference_states(self) -> dict[str, Any]:
        """The states of the reference run by name, as they are now: arrays to read or write in place."""
        return states_of(self)

    def reset_reference(self) -> None:
        """Make every state of the reference run zero again."""
        for array in self.reference_states.values():
            array[...] = 0


def _compile() -> Any:
    """Graphs are compiled above: this import goes up the list of folders, as `Graph.compile` does."""
    from iron_core.compiled import compile

    return compile


def _finish(name: str, signature: Signature, tracer: Tracer, result: Any) -> TracedGraph:
    """Check what a body returned and freeze the trace."""
    single = not isinstance(result, tuple)
    items = (result,) if single else result
    carried: dict[str, Any] = {}
    if items and isinstance(items[-1], Carry):
        carried = items[-1].sources
        items = items[:-1]
        single = False
    if any(isinstance(i, Carry) for i in items):
        raise TraceError(f"{name}: iron.carry() is returned last.")
    outputs = tuple(_output(name, i) for i in items if i is not None)
    if not outputs and not carried and not any(r.tensor.role == "state" for s in tracer.steps for r in s.written()):
        raise TraceError(f"{name}.body returns nothing and writes no state, so a call would do nothing; return its outputs.")
    declared = {v.name for v in tracer.values if v.kind == "carried"}
    if set(carried) != declared:
        unknown, missing = sorted(set(carried) - declared), sorted(declared - set(carried))
        what = f"names {', '.join(unknown)}, which no Carried parameter is" if unknown else f"lacks {', '.join(missing)}"
        raise TraceError(f"{name}: iron.carry() {what}. Carried: {', '.join(sorted(declared)) or 'none'}.")
    carry = tuple(_carry(name, tracer, key, source) for key, source in carried.items())
    tensors = tracer.residents.values()
    return TracedGraph(
        name=name,
        signature=signature,
        steps=tuple(tracer.steps),
        inputs=tuple(tracer.inputs),
        outputs=outputs,
        values=tracer.values,
        carry=carry,
        checks=tuple(tracer.checks.values()),
        id_checks=tuple(tracer.id_checks.values()),
        weights=tuple(b for b in tensors if b.role == "weight"),
        states=tuple(b for b in tensors if b.role == "state"),
        intermediates=tuple(tracer.intermediates),
        single=single,
    )


def _output(name: str, item: Any) -> Region:
    if not isinstance(item, Handle):
        held = isinstance(item, (Weight, State)) or is_array(item)
        what = "a weight or state of the graph" if held else type(item).__name__
        raise TraceError(f"{name} returns {what}; a body returns what its operators made: one handle, or a tuple of them.")
    if item.tensor.role != "intermediate":
        raise TraceError(f"{name} returns {item}, {item.tensor.a_role} of the graph; Copy it to return its content.")
    if not item.whole:
        raise TraceError(f"{name} returns {item}, a part of {item.tensor.name}; Copy it, or return the whole.")
    return item.region()


def _carry(name: str, tracer: Tracer, key: str, source: Any) -> CarryOut:
    value = next(v for v in tracer.values if v.name == key)
    if isinstance(source, (Affine, int, np.integer)) and not isinstance(source, bool):
        low, high = value.range
        if not isinstance(source, Affine) and not low <= source <= high:
            raise TraceError(f"{name}: iron.carry({key}={source}) does not fit {value.dtype}; legal: {low} to {high}.")
        return CarryOut(key, source if isinstance(source, Affine) else int(source))
    if not isinstance(source, Handle):
        raise TraceError(f"{name}: iron.carry({key}=...) takes a handle or a per-call expression; got {type(source).__name__}.")
    if source.tensor.role in ("input", "weight") or not source.whole or source.size != 1:
        raise TraceError(f"{name}: iron.carry({key}=...) takes a whole one-element tensor that the graph made; got {source}.")
    if source.format.name != value.dtype:
        raise TraceError(f"{name}: iron.carry({key}=...) is carried as {value.dtype}; {source} is {source.format}.")
    return CarryOut(key, Region(source.tensor, source.pattern.offset, source.shape))
