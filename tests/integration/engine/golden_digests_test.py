"""Goal: a change that is not meant to change the results of jobs changes no bit of them.
Method: fixed jobs, whose weights after twelve steps have the digests in golden_digests.json. The
kernels of different instruction sets add in different orders, so each set has its own digests; the
jobs of a set that the processor lacks are left out. A commit that changes the bits on purpose
announces it in CHANGELOG.md and writes the file anew:

  MAYFLY_TEST_WRITE=1 ... golden_digests_test.py
"""
import json
import os
import sys

from mayfly_run import Run, SMALL_JOB, expect

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden_digests.json")
JOB = SMALL_JOB + ["--threads", "1", "--workers", "2"]
STEPS = ["--steps", "12"]
JOBS = {
    "exact": [],
    "exact_int16": ["--wire", "int16"],
    "fp32": ["--reduction", "fp32"],
    "fp32_bf16_on_the_wire": ["--reduction", "fp32", "--wire", "bf16"],
    "bf16": ["--dtype", "bf16"],
    "parameter_servers_bsp": ["--sync", "bsp", "--ps", "2"],
}
INSTRUCTION_SETS = ("avx512", "avx2")


def job(name, isa):
    return JOB + JOBS[name] + ["--isa", isa]


def digest_of_resumed(first, isa):
    """The digest of a job that continues from the middle of `first` with three workers."""
    at = os.path.join(first.run_dir, "checkpoints", "step-6")
    words = [*job("exact", isa), *STEPS, "--resume", at]
    words[words.index("--workers") + 1] = "3"
    second = Run(words)
    second.finish()
    found = second.summary()["final_digest"]
    second.remove()
    return found


def digests_of(name, isa):
    """The digests of a job by their names in the file; none if this processor lacks the instruction
    set."""
    more = ["--checkpoint-every", "6"] if name == "exact" else []
    run = Run(job(name, isa) + STEPS + more)
    code = run.wait()
    if code == 2 and ("needs a CPU with" in run.output() or "this CPU has no" in run.output()):
        print(f"{name} on {isa}: not on this processor", flush=True)
        return {}
    expect(code == 0, run.output())
    found = {f"{isa}/{name}": run.summary()["final_digest"]}
    if name == "exact":
        found[f"{isa}/exact_resumed"] = digest_of_resumed(run, isa)
    run.remove()
    return found


def compute():
    found = {}
    for isa in INSTRUCTION_SETS:
        for name in JOBS:
            found.update(digests_of(name, isa))
    return found


def main():
    found = compute()
    expect(found, "no instruction set of this processor is known")
    with open(PATH) as file:
        golden = json.load(file)
    if os.environ.get("MAYFLY_TEST_WRITE"):
        golden.update(found)  # keeps the digests that this processor cannot compute
        with open(PATH, "w") as file:
            file.write(json.dumps(golden, indent=2, sort_keys=True) + "\n")
    for name, value in found.items():
        expect(golden.get(name) == value, f"{name}: {value}, not {golden.get(name)}")
        isa, what = name.split("/")
        if what == "exact_resumed":
            expect(value == found[f"{isa}/exact"], f"{name} is not that of one part")
    print(f"{len(found)} digests are as they were")


if __name__ == "__main__":
    sys.exit(main())
