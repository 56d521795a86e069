"""Calls of the C interface with wrong handles or arguments are refused with a message. Afterwards a
correct job trains to its end, although a forked child has called mf_fail() and mf_close()."""
import ctypes
import os

from mayfly import _abi

library = _abi.load()
memory = (ctypes.c_float * 4)()


def opened():
    """Opens a job; returns (code, handle, message of the error)."""
    job = ctypes.c_void_p()
    text = ctypes.create_string_buffer(1000)
    code = library.mf_open(ctypes.byref(job), text, len(text))
    return code, job, text.value.decode()


def registered():
    code, job, said = opened()
    assert code == _abi.OK, said
    array, _ = _abi.tensors([("weight", _abi.F32, (4,), ctypes.addressof(memory))])
    assert library.mf_register_parameters(job, array, 1) == _abi.OK
    blob = bytes(1000)
    assert library.mf_set_optimizer_state(job, None, 0, blob, len(blob), 0.0) == _abi.OK
    return job


def start(job, **other):
    options = {"data_name": b"nothing", "train_samples": 64, "steps": 5, "global_batch": 16,
               "microbatch": 4, "optimizer_bytes": 4096, **other}
    given = _abi.Options(size=ctypes.sizeof(_abi.Options), **options)
    return library.mf_start(job, ctypes.byref(given))


def expect_refused(job, code, words):
    said = library.mf_error(job).decode()
    assert code == _abi.REFUSED and words in said, (code, said)


def expect_no_second():
    code, job, said = opened()
    assert code == _abi.REFUSED and not job and "has a job already" in said, (code, said)


code, job, said = opened()
assert code == _abi.OK, said
for name, shape, words in (("__metadata__", (4,), "something else by this name"),
                           ("weight", (1,) * 8 + (4,), "9 dimensions"),
                           ("caf", (4,), "tensor caf?: the name is not UTF-8")):
    array, _ = _abi.tensors([(name, _abi.F32, shape, ctypes.addressof(memory))])
    if name == "caf":
        array[0].name = b"caf\xe9"
    expect_refused(job, library.mf_register_parameters(job, array, 1), words)
    expect_refused(job, library.mf_register_buffers(job, array, 1), words)
    expect_refused(job, library.mf_set_optimizer_state(job, array, 1, b"", 0, 0.0), words)
library.mf_close(job)
for wrong, words in (({"microbatch": 5}, "is not a multiple of microbatch 5"),
                     ({"train_samples": (1 << 62) + 1}, "more than 2^62 samples"),
                     ({"test_samples": 1 << 33, "test_chunk": 1}, "more than 2^32 chunks"),
                     ({"optimizer_bytes": 500}, "were reserved"),
                     ({"optimizer_bytes": 1 << 40}, "together at most")):
    job = registered()
    expect_no_second()
    expect_refused(job, start(job, **wrong), words)
    expect_refused(job, start(job), "mf_start() has failed for this job, and is called once")
    library.mf_close(job)
job = registered()
assert library.mf_require_equal(job, b"layers", b"4") == _abi.OK
expect_refused(job, library.mf_require_equal(job, b"layers", b"5"), "layers is already compared")
expect_refused(job, library.mf_require_equal(job, b"caf\xe9", b"5"), "must be UTF-8: caf?")
expect_refused(job, library.mf_require_equal(job, b"layer", b"\xe9"), "must be UTF-8: layer")
assert library.mf_require_equal(job, b"tensors", b"4") == _abi.OK
expect_refused(job, start(job), 'has the name "program: tensors" twice')
library.mf_close(job)
job = registered()
names = (ctypes.c_char_p * 2)(b"norm", b"caf\xe9")
twice = (ctypes.c_char_p * 2)(b"norm", b"norm")
for register in (library.mf_register_metrics, library.mf_register_sums):
    expect_refused(job, register(job, names, 2), "the name of a metric or a sum must be UTF-8: caf")
    expect_refused(job, register(job, twice, 2), "two metrics or two sums have the name norm")
expect_refused(job, start(job, data_name=b"caf\xe9"), "the name of the data set must be UTF-8")
assert library.mf_require_equal(job, b"layers", b"4") == _abi.OK
assert library.mf_note(job, b"early", b"of its own: \xff") == _abi.OK, library.mf_error(job)
assert start(job) == _abi.OK, library.mf_error(job)
expect_refused(job, start(job), "has been started already")
expect_refused(job, library.mf_require_equal(job, b"late", b"4"), "must be named before mf_start()")
expect_no_second()
child = os.fork()
if child == 0:  # its end, and a failure in it, are not those of the worker
    is_refused = library.mf_fail(job, b"a failure of the child") == _abi.REFUSED
    library.mf_close(job)
    os._exit(0 if is_refused and b"was forked" in library.mf_error(job) else 1)
assert os.waitpid(child, 0)[1] == 0
gradient = (ctypes.c_float * 4)(1, 2, 3, 4)
gradients = (ctypes.c_void_p * 1)(ctypes.addressof(gradient))
task = _abi.Task(size=ctypes.sizeof(_abi.Task))
for kind in (b"", b"my kind", b"k" * 101, "caf\u00e9".encode()):
    expect_refused(job, library.mf_note(job, kind, b"nothing"),
                   "the kind of a note must be 1 to 100")
for kind in (b"evaluation", b"checkpoint", b"started"):  # also names of Mayfly's events
    assert library.mf_note(job, kind, b"of its own: \xff") == _abi.OK, library.mf_error(job)
while task.kind != _abi.END:
    code = library.mf_next(job, ctypes.byref(task), 1000)
    assert code in (_abi.OK, _abi.TIMEOUT), library.mf_error(job)
    if code == _abi.OK and task.kind == _abi.MICROBATCH:
        assert library.mf_add(job, gradients, 1.0, 0) == _abi.OK
    elif code == _abi.OK and task.kind == _abi.UPDATE:
        for i in range(4):
            memory[i] -= task.gradients[0][i]
assert task.outcome == _abi.DONE, task.detail
library.mf_close(job)
assert list(memory) == [-5.0, -10.0, -15.0, -20.0], list(memory)
print("refused in words")
