"""benchmarks/compare_pytorch_gpu measures Mayfly and the fastest mode of PyTorch in turns, and
reports which modes it has left out and why.

compare_pytorch_gpu_test.py: the test runs it with imitations of PyTorch and Mayfly.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

PEER = """import json, os, sys, time
mode = sys.argv[sys.argv.index("--mode") + 1]
with open("started", "a") as file:
    print(os.getpid(), file=file)
ABOUT
print(json.dumps({"kind": "ready", "mode": mode, "torch": "2.11", "cudnn": 91900,
                  "device": "pretended", "optimizer": "fused SGD"}), flush=True)
rate = {"eager": 100, "graph": 300, "compile-graph": 400, "compile": 200}[mode]
for line in sys.stdin:
    rate += 1
    print(json.dumps({"kind": "window", "images_per_second": rate}), flush=True)
"""
MAYFLY = """#!/bin/sh
echo '{"kind": "gpu_step", "device": "cuda, pretended", "images_per_second": 450}'
"""


class ComparePytorchGpuTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="compare-gpu"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(ROOT / "benchmarks" / "compare_pytorch_gpu", self.folder)
        (self.folder / "mayfly").write_text(MAYFLY)
        (self.folder / "mayfly").chmod(0o755)

    def compare(self, about="", *arguments):
        """Runs the benchmark; returns the exit code, the lines of its file, and its output.
        `about`: a statement that the imitated PyTorch executes before it is ready."""
        (self.folder / "pytorch_gpu_step.py").write_text(PEER.replace("ABOUT", about))
        done = subprocess.run(
            [sys.executable, "compare_pytorch_gpu", "--binary", "./mayfly", "--output", "lines",
             "--rows", "resnet20:128:bf16", "--rounds", "3", "--seconds", "0.1", *arguments],
            cwd=self.folder, capture_output=True, text=True, timeout=100, check=False)
        path = self.folder / "lines"
        text = path.read_text() if path.exists() else ""
        lines = [json.loads(line) for line in text.splitlines()]
        for pid in (self.folder / "started").read_text().split():
            self.assertFalse(os.path.exists(f"/proc/{pid}"), "a PyTorch process is left behind")
        return done.returncode, lines, done.stdout + done.stderr

    def row(self, lines):
        self.assertEqual(lines[-1]["kind"], "row", lines)
        return lines[-1]

    def test_eager_and_the_fastest_take_turns_with_mayfly(self):
        code, lines, said = self.compare()
        self.assertEqual(code, 0, said)
        row = self.row(lines)
        self.assertEqual([(line["round"], line["contestant"]) for line in lines[:-1]],
                         [(number, name) for number in range(3)
                          for name in ("mayfly", "eager", "compile-graph")])
        self.assertEqual(set(row["chosen_by"]), {"eager", "graph", "compile", "compile-graph"})
        self.assertEqual(row["left_out"], {})
        rates = row["images_per_second"]
        self.assertEqual(rates["compile-graph"]["rounds"], [402, 403, 404])
        self.assertEqual(rates["eager"]["median"], 103)
        self.assertEqual(rates["eager"]["spread"], round(2 / 103, 4))
        self.assertEqual(row["ratio_to"]["fastest"],
                         {"peer": "compile-graph", "of_medians": round(450 / 403, 4),
                          "min": round(450 / 404, 4), "max": round(450 / 402, 4)})
        self.assertEqual(row["ratio_to"]["eager"]["of_medians"], round(450 / 103, 4))
        self.assertEqual(row["target_met"], {"eager": True, "fastest": True})

    def test_every_type_is_a_row(self):
        rows = [f"resnet20:128:{dtype}" for dtype in ("fp32", "bf16", "fp16")]
        code, lines, said = self.compare(
            'assert sys.argv[sys.argv.index("--dtype") + 1] in ("fp32", "bf16", "fp16")',
            "--rows", ",".join(rows), "--rounds", "1")
        self.assertEqual(code, 0, said)
        self.assertEqual([line["row"] for line in lines if line["kind"] == "row"], rows)
        script = str(self.folder / "compare_pytorch_gpu")
        done = subprocess.run([sys.executable, script, "--rows", "resnet20:128:fp8"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("'resnet20:128:fp8' is no row", done.stderr)

    def test_a_way_that_is_not_possible_is_left_out_with_its_words(self):
        code, lines, said = self.compare('if "compile" in mode: sys.exit("no compiler here")')
        self.assertEqual(code, 0, said)
        row = self.row(lines)
        self.assertEqual(row["left_out"], {"compile-graph": "no compiler here",
                                           "compile": "no compiler here"})
        self.assertEqual(row["ratio_to"]["fastest"]["peer"], "graph")

    def test_a_way_for_which_there_is_no_time_is_left_out(self):
        # 13 seconds are reserved for two rounds. The rest is for preparations, which take the first
        # two modes a second at most.
        code, lines, said = self.compare('if mode == "compile-graph": time.sleep(600)',
                                         "--limit", "33")
        self.assertEqual(code, 0, said)
        row = self.row(lines)
        self.assertLessEqual({"compile-graph", "compile"}, set(row["left_out"]))
        for reason in row["left_out"].values():
            self.assertRegex(reason, "not ready after|no time was left")
        self.assertIn(row["ratio_to"]["fastest"]["peer"], ("eager", "graph"))

    def test_without_any_way_the_row_is_left_out(self):
        code, lines, _ = self.compare('sys.exit("CUDA out of memory")')
        self.assertEqual(code, 1)
        self.assertEqual([line["kind"] for line in lines], ["left_out"])
        self.assertIn("eager: CUDA out of memory", lines[0]["reason"])

    def test_without_pytorch_nothing_is_measured(self):
        code, lines, said = self.compare('print("PyTorch 2.11 finds no GPU", file=sys.stderr); '
                                         'sys.exit(77)')
        self.assertEqual((code, lines), (77, []))
        self.assertEqual(said.strip(), "PyTorch 2.11 finds no GPU")

    def test_a_missed_target_is_no_failure(self):
        (self.folder / "mayfly").write_text(MAYFLY.replace("450", "350"))
        code, lines, said = self.compare()
        self.assertEqual(code, 0)
        self.assertEqual(self.row(lines)["target_met"], {"eager": True, "fastest": False})
        self.assertIn("missed: at least 1.0x", said)


if __name__ == "__main__":
    unittest.main()
