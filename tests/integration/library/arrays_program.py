"""Linear regression with momentum in NumPy: STEPS [unseeded | raises | poisoned | forks | sizes |
small | fails_late | many | narrow | renamed | leaves_early | inner | waits | breaks | again |
infinite | no_metric | unbounded | read_only | swapped | misspelt | lacks | shaped | replaces |
replaces_state | handlers | stays | retries | wide | huge | listed | number | scalar | slots |
lingers | shuffled | moves FOLDER]."""
import atexit
import ctypes
import os
import signal
import sys
import time

import mayfly
import numpy

SAMPLES = 256
how = sys.argv[2] if len(sys.argv) > 2 else ""

drawn = numpy.random.default_rng(7)
inputs = drawn.standard_normal((SAMPLES, 8)).astype(numpy.float32)
targets = (inputs @ numpy.arange(8, dtype=numpy.float32) + 3).astype(numpy.float32)
first = numpy.random.default_rng(os.getpid() if how == "unseeded" else 1)
parameters = {"weight": first.standard_normal(8).astype(numpy.float32),
              "bias": numpy.zeros(1, numpy.float32)}
if how == "many":  # the names alone take 60 KB
    parameters.update({f"features.denseblock4.denselayer{i}.norm": numpy.zeros(2, numpy.float32)
                       for i in range(1500)})
if how == "wide":  # like a model that was changed after the run that is resumed
    parameters["bias"] = numpy.zeros(2, numpy.float32)
if how == "scalar":  # its gradient is a number
    parameters["bias"] = numpy.zeros((), numpy.float32)
velocity = {name: numpy.zeros_like(array) for name, array in parameters.items()}
state = {"velocity." + name: array for name, array in velocity.items()}
if how == "narrow":  # like a state that another version of the program saved
    state["velocity.weight"] = numpy.zeros(4, numpy.float32)
if how == "renamed":
    state["momentum.bias"] = state.pop("velocity.bias")

is_shuffled = how == "shuffled" and int(os.environ["MAYFLY_WORKER_NUMBER"]) % 2 == 1
if is_shuffled:  # like dictionaries that are made from sets
    parameters, state = dict(reversed(parameters.items())), dict(reversed(state.items()))
if how == "read_only":
    parameters["bias"].setflags(write=False)
if how == "listed":
    parameters["bias"] = [0.0]
if how == "swapped":
    parameters["bias"] = numpy.zeros(1, ">f4")
if how == "moves":
    os.chdir(os.path.dirname(sys.argv[3]))
if how == "slots":
    print("slot", mayfly.slot(), flush=True)
if how == "retries":
    try:
        mayfly.ArrayJob({"bias": numpy.zeros(1, ">f4")}, samples=SAMPLES, batch=32, steps=1)
        sys.exit("an array in another byte order was not refused")
    except mayfly.Refused as error:
        refused = error  # keeps the objects of its traceback alive, as a notebook does
        print("refused:", refused, flush=True)
    try:
        mayfly.ArrayJob(parameters, samples=SAMPLES, batch=32, steps=1, state=[1])
        sys.exit("a list in place of a dictionary was not refused")
    except TypeError as error:
        print("refused:", error, flush=True)
mask = numpy.triu(numpy.full((4, 4), -numpy.inf, numpy.float32), 1)
lowest = numpy.full(1, numpy.inf, numpy.float32)

job = mayfly.ArrayJob(parameters, samples=SAMPLES + (2**64 if how == "huge" else 0), batch=32,
                      microbatch=2 if how == "small" else 4, steps=int(sys.argv[1]),
                      buffers={"mask": mask, "lowest": lowest} if how in (
                          "infinite", "unbounded") else None,
                      state=state,
                      metrics={"error", "samples"} if how == "shuffled" else ("error", "samples"))
if how == "sizes":  # mf_start() refuses a structure of an older header, and does not read beyond it
    core = job._core
    code = core.library.mf_start(core._handle, ctypes.byref(mayfly._abi.Options(size=8)))
    assert code == mayfly._abi.REFUSED and b"older mayfly.h" in core.library.mf_error(core._handle)
if how == "leaves_early" and os.environ["MAYFLY_WORKER_NUMBER"] == "2":
    job.leave("its time is over before it begins")
if how == "moves":
    os.chdir(sys.argv[3])
if how == "waits":
    print("the program waits before its loop", flush=True)
    time.sleep(60)
if how == "lingers":
    atexit.register(print, "its last words", flush=True)
    atexit.register(time.sleep, 8)
told = []
if how == "handlers":
    signal.signal(signal.SIGTERM, lambda number, frame: told.append(number))
print("the program begins", flush=True)
seen = []  # (gradient, a copy that was made in its step)
for step in job.steps():
    for microbatch in step:
        time.sleep(0.001)
        if how == "handlers" and not told and os.environ["MAYFLY_WORKER_NUMBER"] == "1":
            os.kill(os.getpid(), signal.SIGTERM)
        if how == "inner" and step.number == 20:
            break
        x, y = inputs[microbatch.samples], targets[microbatch.samples]
        error = x @ parameters["weight"] + parameters["bias"] - y
        if how in ("raises", "lingers") and (
                step.number == 40 and os.environ["MAYFLY_WORKER_NUMBER"] == "1"):
            print(1 // 0)
        if how == "poisoned" and step.number > 20 and 17 in microbatch.samples:
            raise ValueError("sample 17 cannot be read")
        if how == "forks" and step.number == 40 and os.fork() == 0:
            sys.exit(3)
        gradients = {"weight": (2 / len(y)) * (error @ x),
                     "bias": numpy.array([2 * error.mean()], numpy.float32)}
        metrics = {"error": abs(error).mean(), "samples": len(y)}
        weight = 1
        if how == "many":
            gradients.update(dict.fromkeys(parameters.keys() - gradients.keys()))
        if how == "no_metric" or (how == "infinite" and microbatch.number % 2 == 1):
            metrics["error"] = numpy.nan
        if how == "infinite" and microbatch.number % 2 == 1:  # has no valid samples
            weight = 0
            lowest[0] = 1
        if how == "unbounded":
            lowest[0] = min(lowest[0], x.min())
        if how == "misspelt":
            gradients["bais"] = gradients.pop("bias")
        if how == "lacks":
            del gradients["bias"]
        if how == "number":
            gradients["bias"] = 2 * float(error.mean())
        if how == "scalar":
            gradients["bias"] = numpy.float32(2 * error.mean())
        if how == "shaped":
            gradients["weight"] = gradients["weight"].reshape(2, 4)
        step.add(gradients, float((error * error).mean()), metrics=metrics, weight=weight)
    if how == "breaks" and step.number == 20:
        break
    seen += [(gradient, gradient.copy()) for gradient in step.gradients.values()]
    for name, gradient in step.gradients.items():
        velocity[name] *= 0.9
        velocity[name] += gradient
        parameters[name] -= 0.01 * velocity[name]
    if is_shuffled and step.number % 30 == 0:
        parameters["bias"] = parameters.pop("bias")
    if how == "replaces" and step.number == 3:
        parameters["bias"] = parameters["bias"] - 0.1
    if how == "replaces_state" and step.number == 3:
        state["velocity.bias"] = 0.9 * state["velocity.bias"]
print(job.outcome, parameters["bias"].flat[0])
assert all(numpy.array_equal(gradient, copied) for gradient, copied in seen)
if how == "handlers":
    os.kill(os.getpid(), signal.SIGTERM)
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted after the loop, told", len(told))
if how == "again":
    print("the seed was", job.seed)
    job = mayfly.ArrayJob(parameters, samples=SAMPLES, batch=32, steps=int(sys.argv[1]))
    for step in job.steps():
        for microbatch in step:
            step.add({name: numpy.zeros_like(array) for name, array in parameters.items()}, 0.0)
    print("again", job.outcome)
if how == "stays":
    time.sleep(100)
if how == "fails_late" and os.environ["MAYFLY_WORKER_NUMBER"] == "1":
    open("/nowhere/model.npy", "wb")
