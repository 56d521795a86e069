"""Goal: the mpi transport keeps the contract of collectives/group.hpp on any number of ranks, over
TCP and shared memory, and survives kills under --enable-recovery.
Method: mpirun starts programs whose ranks all run the same checks. With --enable-recovery mpirun's
exit code has no meaning, so each rank must print that it passed.
Usage: mpi_contract_test.py PROGRAM static|elastic|kill tcp|vader RANKS
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
HANGS = 450  # seconds; usually 3, but 70 for eight ranks beside eight other tests
PAGE_BYTES = 4096


def mpirun(program, mode, btl, ranks, folder):
    page = os.path.join(folder, "page")
    with open(page, "wb") as f:
        f.write(bytes(PAGE_BYTES))
    line = ["mpirun", "--oversubscribe", "--bind-to", "none", "--mca", "btl", btl + ",self",
            "-np", str(ranks)]
    if mode != "static":
        line.insert(1, "--enable-recovery")
    line += [program, page]
    if mode == "kill":
        seed = int(os.environ.get("MAYFLY_TEST_SEEDS", "0")) or random.randrange(1, 1 << 31)
        print(f"seed {seed}", flush=True)
        line.append(str(seed))
    else:
        line.append("--gtest_brief=1")
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    return subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, timeout=HANGS,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def main():
    program, mode, btl, ranks = sys.argv[1:5]
    if shutil.which("mpirun") is None:
        print("skipped: mpirun is not installed")
        return SKIP
    folder = tempfile.mkdtemp(prefix="mayfly-mpi-")
    try:
        done = mpirun(program, mode, btl, ranks, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    passed = done.stdout.count(": passed")
    wanted = 1 if mode == "kill" else int(ranks)
    if passed == wanted and ": failed" not in done.stdout and done.returncode == 0:
        print(f"{passed} ranks passed")
        return 0
    print(done.stdout)
    print(f"{passed} of {wanted} ranks passed; mpirun's exit code {done.returncode}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
