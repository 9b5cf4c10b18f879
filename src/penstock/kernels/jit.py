"""Compile flags for every kernel in one place, and a way to fill the compiler's cache ahead.

A kernel states its argument types, so it has exactly one compiled form: it is ready after import, a
call never compiles, and an array of another type is an error instead of a second compilation.
Arguments are read-only contiguous arrays (what Arrow buffers are), unless their type says that the
kernel changes them; kernels return new arrays.

Compiled code is kept in numba's cache: in NUMBA_CACHE_DIR if set, next to the source, or where that
is not writable in the user's cache directory. Processes that start at the same time on an empty
cache all compile and replace the same files atomically; `warm_up` beforehand spares them that.
The cache looks only at a kernel's own file for changes: a compiled function that kernels call must
stand in the same file as they do.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Ints = npt.NDArray[np.int64]
SmallInts = npt.NDArray[np.int32]
Doubles = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


def _array(element: Any, dimensions: int = 1, readonly: bool = True) -> Any:
    return types.Array(element, dimensions, "C", readonly=readonly)


INT = types.int64
FLAG = types.boolean
DOUBLE = types.float64
INTS = _array(types.int64)
INT_ROWS = _array(types.int64, 2)
SMALL_INTS = _array(types.int32)
DOUBLES = _array(types.float64)
DOUBLE_ROWS = _array(types.float64, 2)
FLAGS = _array(types.boolean)
FLAG_ROWS = _array(types.boolean, 2)
BYTES = _array(types.uint8)
WORDS = _array(types.uint64)
WORD_ROWS = _array(types.uint64, 2)
BYTE_ROWS = _array(types.uint8, 2)
CHANGED_INTS = _array(types.int64, readonly=False)
CHANGED_INT_ROWS = _array(types.int64, 2, readonly=False)
CHANGED_BYTES = _array(types.uint8, readonly=False)
CHANGED_SMALL_INTS = _array(types.int32, readonly=False)
CHANGED_SMALL_INT_ROWS = _array(types.int32, 2, readonly=False)
CHANGED_WORD_ROWS = _array(types.uint64, 2, readonly=False)


def named_tuple(class_: type, *fields: Any) -> Any:
    """The type of an argument that bundles others."""
    if len(set(fields)) == 1:
        alike: Any = types.NamedUniTuple
        return alike(fields[0], len(fields), class_)
    type_: Any = types.NamedTuple
    return type_(fields, class_)


Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(*arguments: Any) -> Callable[[Function], Function]:
    """Compile a function for these argument types."""

    def compile_(function: Function) -> Function:
        try:
            return _jit(function, arguments, cache=True)
        except (OSError, RuntimeError) as error:
            # no place to keep compiled code: slower starts, same results
            if isinstance(error, RuntimeError) and "cannot cache" not in str(error):
                raise
            return _jit(function, arguments, cache=False)

    return compile_


def inner(function: Function) -> Function:
    """Compile a function that only kernels of the same file call; it is inlined into them.

    It may not make arrays: so those it is given need no reference counts, which would cost more
    than what small functions do.
    """
    options: dict[str, Any] = {"forceinline": True, "_nrt": False}
    return cast(Function, numba.njit(nogil=True, fastmath=False, **options)(function))


def _prefetch(_typing: Any, array: Any, _index: Any) -> Any:
    """In a kernel: ask for the cache line of an element, by its flat index, and do not wait."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place, number = builder.gep(data, [arguments[1]]), ir.IntType(32)
        function = builder.module.declare_intrinsic(
            "llvm.prefetch",
            [place.type],
            ir.FunctionType(ir.VoidType(), [place.type, number, number, number]),
        )
        to_write, near, data_cache = number(1), number(3), number(1)
        builder.call(function, [place, to_write, near, data_cache])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Any = intrinsic(_prefetch)


def _jit(function: Function, arguments: tuple[Any, ...], cache: bool) -> Function:
    jit = numba.njit(arguments, nogil=True, fastmath=False, error_model="numpy", cache=cache)
    return cast(Function, jit(function))


def warm_up() -> None:
    """Compile every kernel, or load it from the cache."""
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
