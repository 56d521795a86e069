"""Goal: on a machine with a GPU, scripts/gpu-check measures Mayfly and PyTorch in turns, and its
report contains the ratios.
Method: the same without a GPU: scripts/gpu-check in a folder like the bundle's, the program beside
the modules of this folder, and PyTorch on the CPU. No time is checked.
usage: peer_test.py FOLDER-WITH-MODULES
"""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import mayfly_run
from mayfly_run import SKIP, expect

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODULES = pathlib.Path(sys.argv.pop(1)).resolve()
ROW = "resnet20:8:fp32"
PROBE = "#!/bin/sh\necho 'Pretended GPU, driver for CUDA 13.0, NCCL 2.28.9'\n"
ARGUMENTS = ["--rows", ROW, "--rounds", "3", "--seconds", "0.2"]


def bundle(folder):
    """A folder like that of scripts/gpu-bundle, for a machine without a GPU; returns its path."""
    inside = pathlib.Path(folder) / "mayfly-gpu"
    (inside / "bin").mkdir(parents=True)
    (inside / "peer").mkdir()
    shutil.copy(ROOT / "scripts" / "gpu-check", inside)
    for name in ("compare_pytorch_gpu", "pytorch_gpu_step.py", "pytorch_step.py"):
        shutil.copy(ROOT / "benchmarks" / name, inside / "peer")
    for program in ("", "-bench"):
        shutil.copy(mayfly_run.BINARY + program, inside / "bin" / f"mayfly{program}")
    for name in ("libmayfly_cuda.so", "libmayfly_nccl.so"):
        os.symlink(MODULES / name, inside / "bin" / name)
    (inside / "bin" / "gpu_tests").write_text(PROBE)
    (inside / "bin" / "gpu_tests").chmod(0o755)
    return inside


def check(inside, *peer_arguments):
    """Runs the comparison with PyTorch; returns its part of the report."""
    path = inside / "report.json"
    words = " ".join([*ARGUMENTS, *peer_arguments])
    done = subprocess.run([sys.executable, inside / "gpu-check", "--only", "pytorch", "--report",
                           path, "--peer-arguments", words], capture_output=True, text=True,
                          timeout=500, check=False)
    expect(path.exists(), done.stdout + done.stderr)
    return json.loads(path.read_text())["checks"]["pytorch"]


def ways_are_compared_in_turns():
    with tempfile.TemporaryDirectory(prefix="mayfly-peer-") as folder:
        found = check(bundle(folder), "--peer-device", "cpu")
    expect(found["result"] == "passed", f"{found}")
    rounds = found["values"]["rounds"]
    expect([(r["round"], r["contestant"]) for r in rounds if r["contestant"] in ("mayfly", "eager")]
           == [(n, name) for n in range(3) for name in ("mayfly", "eager")], f"{rounds}")
    row, = found["values"]["rows"]
    expect(row["row"] == ROW and row["rounds"] == 3 and "rehearsal" in row["device"], f"{row}")
    expect("without a GPU" in row["left_out"]["graph"], f"{row['left_out']}")
    rates = {name: [r["images_per_second"] for r in rounds if r["contestant"] == name]
             for name in ("mayfly", "eager")}
    for name, values in rates.items():
        told = row["images_per_second"][name]
        expect(told["rounds"] == values and min(values) > 0, f"{name}: {told}")
        median = statistics.median(values)
        expect(abs(told["median"] - median) < 0.01, f"{name}: {told}")
        expect(abs(told["spread"] - (max(values) - min(values)) / median) < 1e-3, f"{told}")
    ratio = row["ratio_to"]["eager"]
    medians = [statistics.median(rates[name]) for name in ("mayfly", "eager")]
    expect(abs(ratio["of_medians"] - medians[0] / medians[1]) < 1e-3, f"{ratio}")
    expect(ratio["min"] <= ratio["max"], f"{ratio}")
    expect(row["target_at_least"] == {"eager": 3.0, "fastest": 1.0}, f"{row}")
    for name, least in row["target_at_least"].items():
        met = row["ratio_to"][name]["of_medians"] >= least
        expect(row["target_met"][name] == met, f"{name}: {row}")


def in_fp16_both_sides_are_measured():
    """PyTorch computes in fp32 here, because it has no fp16 on CPUs."""
    row_name = "resnet20:8:fp16"
    with tempfile.TemporaryDirectory(prefix="mayfly-peer-") as folder:
        found = check(bundle(folder), "--peer-device", "cpu", "--rows", row_name, "--rounds", "1")
    expect(found["result"] == "passed", f"{found}")
    row, = found["values"]["rows"]
    expect(row["row"] == row_name and row["dtype"] == "fp16", f"{row}")
    ours, = [r for r in found["values"]["rounds"] if r["contestant"] == "mayfly"]
    expect(ours["dtype"] == "fp16", f"{ours}")


def where_pytorch_has_no_gpu_it_is_skipped():
    with tempfile.TemporaryDirectory(prefix="mayfly-peer-") as folder:
        found = check(bundle(folder))
    expect(found["result"] == "skipped" and "finds no GPU" in found["reason"], f"{found}")


def what_mayfly_says_is_passed_on():
    with tempfile.TemporaryDirectory(prefix="mayfly-peer-") as folder:
        inside = bundle(folder)
        os.remove(inside / "bin" / "libmayfly_nccl.so")
        found = check(inside, "--peer-device", "cpu")
    expect(found["result"] == "failed", f"{found}")
    left_out, = found["values"]["left_out"]
    expect("backend nccl cannot be used" in left_out["reason"], f"{left_out}")


def main():
    torch = subprocess.run([sys.executable, "-c", "import torch, sys; "
                            "sys.exit(torch.cuda.is_available())"], capture_output=True,
                           check=False)
    if torch.returncode != 0:
        print("skipped: PyTorch is not installed, or there is a GPU and nothing to rehearse")
        return SKIP
    return mayfly_run.main({test.__name__: test for test in (
        ways_are_compared_in_turns, in_fp16_both_sides_are_measured,
        where_pytorch_has_no_gpu_it_is_skipped, what_mayfly_says_is_passed_on)})


if __name__ == "__main__":
    sys.exit(main())
