"""The declarations of library/include/mayfly/mayfly.h for ctypes. A test compares the two."""

import ctypes
import os
from ctypes import (POINTER, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint,
                    c_uint32, c_uint64, c_void_p)

ABI_VERSION = 1

OK, TIMEOUT, REFUSED, FAILED, ABSENT = range(5)
F32, F64, F16, BF16, I64, I32, I16, I8, U8, BOOL = range(10)
ELEMENT_BYTES = (4, 8, 2, 2, 8, 4, 2, 1, 1, 1)
MICROBATCH, UPDATE, LOAD, EVALUATE, END = range(1, 6)
DONE, DRAINED, STOPPED, LOST = range(4)


class MayflyError(RuntimeError):
    """The job, or a connection to it, has failed."""


class Refused(MayflyError):
    """A setting or a call is wrong, or the coordinator refuses this worker. A program that does not
    catch it ends with one line and exit code 2."""


class Tensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("shape", POINTER(c_int64)),
                ("dimensions", c_size_t), ("data", c_void_p)]


class Options(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("data_name", c_char_p), ("train_samples", c_uint64),
                ("test_samples", c_uint64), ("test_chunk", c_uint32), ("steps", c_uint64),
                ("global_batch", c_uint32), ("microbatch", c_uint32),
                ("optimizer_bytes", c_uint64)]


class Task(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("step", c_uint64), ("number", c_uint32),
                ("seed", c_uint64), ("samples", POINTER(c_uint64)), ("epochs", POINTER(c_uint64)),
                ("sample_count", c_size_t), ("gradients", POINTER(POINTER(c_float))),
                ("outcome", c_int), ("detail", c_char_p), ("loss", c_double), ("speaks", c_int)]


class Upcoming(ctypes.Structure):
    _fields_ = [("step", c_uint64), ("number", c_uint32), ("seed", c_uint64)]


class LoadedState(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("tensors", POINTER(Tensor)), ("tensor_count", c_size_t),
                ("blob", c_void_p), ("blob_bytes", c_size_t)]


class EvaluationResult(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("step", c_uint64), ("samples", c_uint64),
                ("correct", c_uint64), ("loss_sum", c_double)]


_JOB = c_void_p
FUNCTIONS = {
    "mf_abi_version": (c_uint, []),
    "mf_version": (c_char_p, []),
    "mf_open": (c_int, [POINTER(_JOB), c_char_p, c_size_t]),
    "mf_error": (c_char_p, [_JOB]),
    "mf_seed": (c_uint64, [_JOB]),
    "mf_require_equal": (c_int, [_JOB, c_char_p, c_char_p]),
    "mf_register_parameters": (c_int, [_JOB, POINTER(Tensor), c_size_t]),
    "mf_register_buffers": (c_int, [_JOB, POINTER(Tensor), c_size_t]),
    "mf_register_metrics": (c_int, [_JOB, POINTER(c_char_p), c_size_t]),
    "mf_set_metric": (c_int, [_JOB, c_size_t, c_double]),
    "mf_register_sums": (c_int, [_JOB, POINTER(c_char_p), c_size_t]),
    "mf_set_sum": (c_int, [_JOB, c_size_t, c_double]),
    "mf_set_optimizer_state": (c_int, [_JOB, POINTER(Tensor), c_size_t, c_char_p, c_size_t,
                                       c_double]),
    "mf_start": (c_int, [_JOB, POINTER(Options)]),
    "mf_next": (c_int, [_JOB, POINTER(Task), c_uint32]),
    "mf_peek": (c_int, [_JOB, POINTER(Upcoming), c_size_t, POINTER(c_size_t)]),
    "mf_samples": (c_int, [_JOB, c_uint64, c_uint32, POINTER(c_uint64), POINTER(c_uint64)]),
    "mf_set_weight": (c_int, [_JOB, c_double]),
    "mf_add": (c_int, [_JOB, POINTER(c_void_p), c_double, c_uint32]),
    "mf_evaluated": (c_int, [_JOB, c_uint64, c_double]),
    "mf_take_evaluation": (c_int, [_JOB, POINTER(EvaluationResult)]),
    "mf_total_sums": (c_int, [_JOB, POINTER(c_double), c_size_t]),
    "mf_loaded": (c_int, [_JOB, POINTER(LoadedState)]),
    "mf_leave": (c_int, [_JOB, c_char_p]),
    "mf_stop": (c_int, [_JOB]),
    "mf_note": (c_int, [_JOB, c_char_p, c_char_p]),
    "mf_fail": (c_int, [_JOB, c_char_p]),
    "mf_close": (None, [_JOB]),
}


def _candidates():
    """Paths of libmayfly: named by `mayfly run`, beside this package, or in system folders."""
    if named := os.environ.get("MAYFLY_LIBRARY"):
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    beside = [os.path.join(here, *way, "libmayfly.so.0")
              for way in ([], ["_bundle", "lib", "mayfly"], ["..", "..", ".."],
                          ["..", "..", "..", "build", "release"])]
    return [path for path in beside if os.path.exists(path)] + ["libmayfly.so.0"]


def load():
    """Loads the library and declares its functions."""
    failure = None
    for path in _candidates():
        try:
            library = ctypes.CDLL(path)
            break
        except OSError as error:
            failure = failure or error
    else:
        raise Refused(f"libmayfly.so.0 cannot be loaded ({failure}); install it, build it with "
                      "scripts/build release library, or name it with MAYFLY_LIBRARY")
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    if library.mf_abi_version() != ABI_VERSION:
        raise Refused(f"{library._name} has the interface {library.mf_abi_version()}, this package "
                      f"is for {ABI_VERSION}; install both of one version")
    return library


def tensors(described):
    """Converts (name, type, shape, address) of each tensor to an array for C. Returns it, and the
    objects to which it points."""
    array = (Tensor * len(described))()
    kept = []
    for target, (name, kind, shape, address) in zip(array, described):
        numbers = (c_int64 * len(shape))(*shape)
        encoded = name.encode()
        kept += [numbers, encoded]
        target.name = encoded
        target.type = kind
        target.shape = numbers
        target.dimensions = len(shape)
        target.data = address
    return array, kept


def bytes_at(address, size):
    """A copy of `size` bytes. ctypes.string_at() would convert the size to a C int, in which 2 GiB
    are negative and 4 GiB are 0."""
    return bytes((ctypes.c_char * size).from_address(address)) if size else b""
