"""Make the shapes of a model's inputs concrete by the user's options; reject contradictions.

One model file stands for many workloads; a measurement needs every dimension fixed. Must not know
nodes or weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from bricks.errors import ModelError, OpenDimensions, ShapeError
from bricks.graph.onnx_types import dtype_of, notation
from bricks.graph.types import (
    ELEMENT_BITS,
    LARGEST_DIM,
    RANGE,
    ContainerType,
    TensorType,
    ValueType,
    shown_shape,
)

# The nesting depth of containers: runtimes support at most an optional sequence of maps.
_MAX_DEPTH = 3
# Names that exporters give to every open dimension: equal names are not one size.
_NO_SYMBOLS = frozenset(("", "?", "*", "-1", "None", "none", "unk", "unknown", "dynamic"))
# Some exporters write 0 for "any", so options may replace it; runtimes accept it as a size.
_ANY = 0
# Prefix of a decoder's inputs for cached keys and values, which are empty before the first token.
CACHE = "past"
_Dim = onnx.TensorShapeProto.Dimension


def make_concrete(
    graph: onnx.GraphProto,
    batch: int | None,
    shapes: Mapping[str, Sequence[int | None]],
    file: str,
    specified: Mapping[str, ValueType] | None = None,
) -> tuple[tuple[tuple[str, ValueType], ...], bool]:
    """Set every dimension of the inputs of ``graph``; return their types.

    A size of None in ``shapes`` leaves that dimension as the file has it. ``specified`` are types
    of inputs with user-specified values. The second result is whether ``batch`` replaced a
    dimension that the file fixes. Raises :class:`ShapeError` for options that contradict the
    model, and :class:`OpenDimensions` for dimensions that stay open.
    """
    specified = specified or {}
    if batch is not None and not 1 <= batch <= LARGEST_DIM:
        raise ShapeError(f"{file}: batch {batch} makes no sense: give 1 to {LARGEST_DIM}")
    names = [value.name for value in graph.input if not _is_container(value, file)]
    for name, shape in shapes.items():
        if name not in names:
            listed = ", ".join(f"'{known}'" for known in names) or "none"
            raise ShapeError(f"{file}: there is no input '{name}'; inputs are: {listed}")
        if not all(dim is None or 0 <= dim <= LARGEST_DIM for dim in shape):
            raise ShapeError(
                f"{file}: shape {shown_shape(shape)} for input '{name}' makes no sense: {RANGE}"
            )
    binding = _Binding(graph, file)
    for name, shape in shapes.items():
        binding.set_shape(name, shape, f"--shape {name}={shown_shape(shape)}")
    for name, type_ in specified.items():
        if isinstance(type_, TensorType):
            binding.set_shape(name, type_.shape, f"the value given for input '{name}'")
    if batch is not None:
        stated = (name for name, shape in shapes.items() if not shape or shape[0] is not None)
        binding.set_batch(batch, skip={*stated, *specified})
    types, rebatched = binding.concrete_types()
    named: dict[str, ValueType] = dict(types)
    for value in graph.input:
        if value.name not in named:
            try:
                type_ = specified.get(value.name) or assumed_container(value.type)
            except ModelError as exc:
                raise ModelError(f"{file}: input '{value.name}': {exc}") from exc
            if not type_.sensible:
                raise ShapeError(
                    f"{file}: input '{value.name}' ({type_}) is larger than any host can hold"
                )
            named[value.name] = type_
    return tuple((value.name, named[value.name]) for value in graph.input), rebatched


def with_open_sizes(models: Sequence[onnx.ModelProto], name: str) -> onnx.ModelProto:
    """Return one model for the sizes of all ``models``: dimensions in which inputs differ are open.

    Raises :class:`ShapeError` where the models, called ``name``, differ in more than that.
    """
    opened = [onnx.ModelProto() for _ in models]
    for copy, proto in zip(opened, models, strict=True):
        copy.CopyFrom(proto)
        del copy.graph.value_info[:]
        for value in copy.graph.output:
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    for values in zip(*(copy.graph.input for copy in opened), strict=True):
        dims = [value.type.tensor_type.shape.dim for value in values]
        if len({len(each) for each in dims}) == 1:
            for axis, sizes in enumerate(zip(*dims, strict=True)):
                if len({dim.dim_value for dim in sizes}) > 1:
                    for dim in sizes:
                        dim.dim_param = f"{values[0].name}_{axis}"
    if len({copy.SerializeToString(deterministic=True) for copy in opened}) > 1:
        raise ShapeError(
            f"{name}: its graph depends on the size, so that no session runs several: give a model"
            " whose dimensions are open"
        )
    return opened[0]


def with_sizes(opened: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """Return a copy of a model with ``shapes`` of its inputs, by name."""
    copy = onnx.ModelProto()
    copy.CopyFrom(opened)
    for value in copy.graph.input:
        if value.type.HasField("tensor_type"):
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
                dim.dim_value = size
    return copy


def assumed_container(proto: onnx.TypeProto, depth: int = 0) -> ValueType:
    """Return the assumed type of an input without a specified value, such as a container.

    A sequence has two items, an optional is present, a map has one entry; axes of unknown size have
    one element.
    """
    kind = proto.WhichOneof("value")
    if depth > _MAX_DEPTH:
        raise ModelError(f"{notation(proto)} with more around it is not supported")
    if kind == "sequence_type":
        item = assumed_container(proto.sequence_type.elem_type, depth + 1)
        return ContainerType(notation(proto), (item, item))
    if kind == "optional_type":
        item = assumed_container(proto.optional_type.elem_type, depth + 1)
        return ContainerType(notation(proto), (item,))
    if kind == "map_type":
        dtype = dtype_of(proto.map_type.value_type.tensor_type.elem_type)
        return ContainerType(notation(proto), (TensorType(dtype, (1,)),))
    if kind != "tensor_type":
        raise ModelError(f"{notation(proto)} is not supported")
    dtype = dtype_of(proto.tensor_type.elem_type)
    sizes = (_read_dim(dim) for dim in proto.tensor_type.shape.dim)
    return TensorType(dtype, tuple(size if isinstance(size, int) else 1 for size in sizes))


def element_type(value: onnx.ValueInfoProto, file: str) -> str:
    """Return the ONNX name of the element type of the tensor ``value``."""
    number = value.type.tensor_type.elem_type
    try:
        dtype = onnx.TensorProto.DataType.Name(number)
    except ValueError:
        dtype = "UNDEFINED"
    if dtype not in ELEMENT_BITS and dtype != "STRING":
        raise ModelError(f"{file}: input '{value.name}' has no known element type ({number})")
    return str(dtype)


def _is_container(value: onnx.ValueInfoProto, file: str) -> bool:
    """Whether an input is a sequence, an optional or a map, which have no dimensions."""
    kind = value.type.WhichOneof("value")
    if kind in ("sequence_type", "optional_type", "map_type"):
        return True
    if kind != "tensor_type":
        what = (kind or "untyped").removesuffix("_type").replace("_", " ")
        raise ModelError(f"{file}: input '{value.name}' is not a tensor ({what}): not supported")
    return False


class _Binding:
    """Sizes of input dimensions and of symbols, while options are applied one by one."""

    def __init__(self, graph: onnx.GraphProto, file: str) -> None:
        self._file = file
        self._values = {v.name: v for v in graph.input if not _is_container(v, file)}
        self._dtypes = {name: element_type(v, file) for name, v in self._values.items()}
        # Dimensions of each input: a number, a symbol, or "" if unknown; None without a rank.
        self._dims: dict[str, list[int | str] | None] = {
            name: [_read_dim(dim) for dim in value.type.tensor_type.shape.dim]
            if value.type.tensor_type.HasField("shape")
            else None
            for name, value in self._values.items()
        }
        self._bound: dict[str, tuple[int, str]] = {}
        self._changed = False

    def set_shape(self, name: str, shape: Sequence[int | None], origin: str) -> None:
        dims = self._dims[name]
        if dims is None:
            self._dims[name] = ["" if size is None else size for size in shape]
            return
        if len(dims) != len(shape):
            raise ShapeError(
                f"{self._file}: {origin} has {len(shape)} dimensions,"
                f" input '{name}' has {len(dims)}"
            )
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if size is None:
                continue
            if isinstance(dim, int) and dim not in (_ANY, size):
                hint = (
                    f"; give --batch {size} to change it" if axis == 0 and dim == 1 and size else ""
                )
                raise ShapeError(
                    f"{self._file}: {origin} contradicts input '{name}', whose axis {axis} is fixed"
                    f" at {dim}{hint}"
                )
            self._set(name, axis, size, origin)

    def set_batch(self, batch: int, skip: Collection[str]) -> None:
        applied = False
        for name, dims in self._dims.items():
            if not dims:
                continue
            if name not in skip and (isinstance(dims[0], str) or dims[0] in (_ANY, 1)):
                self._changed = self._changed or (isinstance(dims[0], int) and dims[0] != batch)
                self._set(name, 0, batch, f"--batch {batch}")
            applied = applied or dims[0] == batch
        if not applied:
            fixed = "; ".join(
                f"'{name}' is {shown_shape(dims)}" for name, dims in self._dims.items() if dims
            )
            raise ShapeError(f"{self._file}: --batch {batch} fits no input: {fixed or 'none'}")

    def concrete_types(self) -> tuple[list[tuple[str, TensorType]], bool]:
        known = {name: self._known(dims) for name, dims in self._dims.items()}
        if any(
            dims is None or not all(isinstance(d, int) for d in dims) for dims in known.values()
        ):
            raise self._open(known)
        types = []
        for name, dims in known.items():
            concrete = tuple(size for size in dims or () if isinstance(size, int))
            type_ = TensorType(self._dtypes[name], concrete)
            if not type_.sensible:
                raise ShapeError(
                    f"{self._file}: input '{name}' ({type_}) is larger than any host can hold"
                )
            types.append((name, type_))
            shape = self._values[name].type.tensor_type.shape
            del shape.dim[:]
            shape.SetInParent()  # a scalar has an empty shape, unlike a missing one
            shape.dim.extend(_Dim(dim_value=size) for size in concrete)
        return types, self._changed

    def _known(self, dims: Sequence[int | str] | None) -> list[int | str] | None:
        if dims is None:
            return None
        return [self._bound.get(d, (d, ""))[0] if isinstance(d, str) else d for d in dims]

    def _set(self, name: str, axis: int, size: int, origin: str) -> None:
        dims = self._dims[name]
        assert dims is not None
        symbol = dims[axis]
        if isinstance(symbol, str) and symbol:
            before, by = self._bound.setdefault(symbol, (size, origin))
            if before != size:
                raise ShapeError(
                    f"{self._file}: dimension '{symbol}' is {before} by {by},"
                    f" but {size} by {origin} (input '{name}', axis {axis})"
                )
        dims[axis] = size

    def _open(self, known: Mapping[str, Sequence[int | str] | None]) -> OpenDimensions:
        """Return the error for all open dimensions, with options that would set them."""
        problems, options, only_batch = [], list[str](), True
        sizes = example_sizes(known, self._dtypes)
        for name, dims in known.items():
            axes = [i for i, d in enumerate(dims or ()) if isinstance(d, str)]
            if dims is not None and not axes:
                continue
            only_batch = only_batch and axes == [0]
            if dims is None:
                problems.append(f"input '{name}' has no shape, not even a rank")
            else:
                listed = ", ".join(f"'{dims[a]}' (axis {a})".removeprefix("'' ") for a in axes)
                many = "an open dimension" if len(axes) == 1 else "open dimensions"
                problems.append(f"input '{name}' has {many} {listed}")
            options += ["--shape", f"{name}={shown_shape(sizes[name])}"] if name else []
        if only_batch:
            options = ["--batch", "1"]
        nameless = known.get("") if "" in known else ()
        problem = f"{self._file}: {'; '.join(problems)}"
        if not only_batch and (nameless is None or any(isinstance(d, str) for d in nameless)):
            return OpenDimensions(f"{problem}: give the input a name in the file, then --shape", ())
        ranked = {name: dims for name, dims in known.items() if name and dims is not None}
        if len(ranked) < len(known):
            return OpenDimensions(problem, options)
        return OpenDimensions(problem, options, ranked, sizes)


def _read_dim(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    # Some exporters write -1 for "any".
    if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
        return dim.dim_value
    symbol: str = dim.dim_param.strip()
    return "" if symbol in _NO_SYMBOLS else symbol


_IMAGE, _TOKENS, _SAMPLES, _STEPS = 224, 128, 16000, 64
# At most so many channels make an image.
_CHANNELS = 4


def example_sizes(
    known: Mapping[str, Sequence[int | str] | None], dtypes: Mapping[str, str]
) -> dict[str, tuple[int, ...]]:
    """Return a complete shape for each input; a symbol gets one size wherever it occurs.

    ``known`` has the dimensions of each input: numbers, symbols, "" for a nameless open dimension;
    or None without a rank. ``dtypes`` are ONNX names.
    """
    bound: dict[str, int] = {}
    shapes = {}
    for name, dims in known.items():
        sizes = []
        for axis, dim in enumerate(dims if dims is not None else ("",)):
            if isinstance(dim, int):
                sizes.append(dim)
                continue
            usual = _usual(axis, dims or ("",), dtypes[name])
            sizes.append(bound.setdefault(dim, usual) if dim else usual)
        shapes[name] = tuple(sizes)
    return shapes


def _usual(axis: int, dims: Sequence[int | str], dtype: str) -> int:
    """Return a usual size of ``axis`` of an input with ``dims`` and the ONNX type ``dtype``."""
    if axis == 0 and len(dims) > 1:
        return 1
    if len(dims) == 4:
        last, first = dims[3], dims[1]
        channels = 3 if isinstance(last, int) and last <= _CHANNELS and axis != 3 else 1
        if axis == channels and not isinstance(first, int):
            return 3
        return _IMAGE
    if "INT" in dtype:
        return _TOKENS
    if len(dims) == 3 and axis == 1 and isinstance(dims[0], int) and dims[0] > 1:
        return 1  # the state of a recurrent network: layers, batch, units
    return _SAMPLES if len(dims) <= 2 else _STEPS
