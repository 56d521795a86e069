"""scripts/gpu-check runs all its checks, also after one has failed, and reports each.

gpu_check_test.py: the test replaces the programs by imitations. tests/lint/gpu_reports.py must
accept the report.
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
sys.path.insert(0, str(ROOT / "tests" / "lint"))
import gpu_reports  # noqa: E402: the path comes first

TESTS = """#!/bin/sh
case "$1" in
--gtest_filter=*) echo 'Pretended GPU, driver for CUDA 13.0, NCCL 2.28.9'; exit 0;;
esac
echo '{"planned": 1, "passed": %d, "failed": %d, "tests": [{"name": "A.B", "result": "%s"}]}' >"$2"
exit %d
"""
MAYFLY = """#!/bin/sh
case "$*" in
'train --help'|'bench step --help') echo '  --device'; exit 0;;
*'--reduction fp32'*) echo '{"images_per_second": 102}'; exit 0;;
'bench step'*) echo '{"images_per_second": 100}'; exit 0;;
esac
loss=2.5
while [ $# -gt 1 ]; do
  case "$1 $2" in
  '--run-dir '*) folder=$2;;
  '--device cuda:0') loss=2.5001;;
  esac
  shift
done
if [ -n "$folder" ]; then
  mkdir "$folder"
  for step in 1 2 3; do echo '{"step": '$step', "loss": '$loss'}'; done >"$folder/metrics.jsonl"
fi
%s
"""
# Writes lines as compare_pytorch_gpu writes them to its --output.
PEER = """#!/usr/bin/env python3
import json, os, sys
values = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert os.access(values["--binary"], os.X_OK) and float(values["--limit"]) > 0
assert "lib" in values["--libraries"] and "lib" not in os.environ["LD_LIBRARY_PATH"]
for line in LINES:
    with open(values["--output"], "a") as file:
        print(json.dumps({**line, "words": sys.argv[1:]}), file=file)
print(SAID, file=sys.stderr)
sys.exit(CODE)
"""
SUMMARY = """[ -z "$folder" ] || case $folder in
*elastic) digest=%s
  for kind in joined joined joined lost joined; do
    echo '{"kind": "'$kind'"}' >>"$folder/events.jsonl"
  done;;
*) digest=%s;;
esac
[ -z "$folder" ] || echo '{"steps": 120, "final_digest": "'$digest'", "membership_changes": 2,
    "recoveries": [{"cause": "lost", "step_ms": 700}]}' >"$folder/summary.json"
"""


class GpuCheckTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpu-check"))
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(ROOT / "scripts" / "gpu-check", self.folder / "gpu-check")
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "libmayfly_cuda.so").write_text("")
        build = {"commit": "a" * 40, "uncommitted_changes": False}
        (self.folder / "build.json").write_text(json.dumps(build))
        self.program("gpu_tests", TESTS % (1, 0, "passed", 0))
        self.program("mayfly", MAYFLY % (SUMMARY % ("1234", "1234")))

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def peer(self, lines, code=0, said=""):
        text = PEER.replace("LINES", repr(lines)).replace("SAID", repr(said))
        (self.folder / "peer").mkdir()
        (self.folder / "peer" / "compare_pytorch_gpu").write_text(text.replace("CODE", str(code)))

    def check(self, *arguments):
        path = self.folder / "report.json"
        environment = dict(os.environ, PATH=f"{self.folder}/bin:{os.environ['PATH']}",
                           LD_LIBRARY_PATH="")
        run = subprocess.run([sys.executable, self.folder / "gpu-check", "--report", path,
                              *arguments], capture_output=True, text=True, timeout=100,
                             env=environment, check=False)
        self.assertEqual(run.stderr, "")
        return run.returncode, run.stdout, json.loads(path.read_text())

    def results(self, report):
        return {name: check["result"] for name, check in report["checks"].items()}

    def expect_whole(self, report):
        self.assertEqual([*gpu_reports.field_problems(report),
                          *gpu_reports.check_problems(report)], [])

    def test_all_checks_pass_or_say_why_not(self):
        code, _, report = self.check()
        self.assertEqual(code, 0, report)
        self.expect_whole(report)
        self.assertEqual(report["gpu"], "Pretended GPU")
        results = self.results(report)
        for name in ("tests", "against_cpu", "training", "repetition", "elasticity", "nccl",
                     "nccl_elasticity", "fp16", "large_network", "exact_sums", "step_speed",
                     "recovery"):
            self.assertEqual(results[name], "passed", report)
        values = {name: check.get("values") for name, check in report["checks"].items()}
        self.assertEqual(values["tests"]["planned"], 4, "a part of the tests in each process")
        self.assertEqual((values["exact_sums"]["cost"], values["exact_sums"]["target_met"]),
                         (0.02, True))
        self.assertEqual(values["recovery"]["kill_to_next_step_ms"], 700)
        for name, rows in (("large_network", ["bf16", "fp16"]), ("fp16", ["one", "elastic"]),
                           ("nccl", ["ranks_1", "ranks_2", "ranks_4"]),
                           ("step_speed", ["resnet20:128:bf16", "resnet50:64:bf16",
                                           "resnet50:64:fp16"])):
            self.assertEqual(list(values[name]), rows)
        self.assertEqual(results["pytorch"], "skipped")
        self.assertIn("no scripts for PyTorch", report["checks"]["pytorch"]["reason"])

    def test_checks_are_reported_in_their_order_however_many_run_beside_each_other(self):
        order = [list(self.check("--beside", str(count))[2]["checks"]) for count in (1, 12)]
        self.assertEqual(order[0], order[1])
        self.assertLess(order[0].index("training"), order[0].index("repetition"))

    def test_rows_beside_pytorch_are_in_the_report(self):
        row = {"kind": "row", "row": "resnet50:256:bf16", "target_met": {"fastest": False}}
        self.peer([{"kind": "round", "contestant": "mayfly"}, row])
        code, _, report = self.check("--only", "pytorch", "--peer-arguments", "--rounds 3")
        self.assertEqual(code, 0, report)
        self.expect_whole(report)
        values = report["checks"]["pytorch"]["values"]
        self.assertEqual([len(values[name]) for name in ("rows", "rounds", "left_out")], [1, 1, 0])
        self.assertEqual(values["rows"][0]["target_met"], {"fastest": False})
        self.assertEqual(values["rows"][0]["words"][-2:], ["--rounds", "3"])

    def test_without_pytorch_it_says_so(self):
        self.peer([], 77, "PyTorch 2.11 finds no GPU")
        code, _, report = self.check("--only", "pytorch")
        self.assertEqual(code, 0, report)
        self.assertEqual(self.results(report), {"pytorch": "skipped"})
        self.assertEqual(report["checks"]["pytorch"]["reason"], "PyTorch 2.11 finds no GPU")

    def test_what_could_not_be_compared_is_a_failure_beside_what_could(self):
        self.peer([{"kind": "row"}, {"kind": "left_out", "reason": "mayfly: no"}], 1, "mayfly: no")
        code, _, report = self.check("--only", "pytorch")
        self.assertEqual(code, 1)
        check = report["checks"]["pytorch"]
        self.assertIn("mayfly: no", check["reason"])
        self.assertEqual(len(check["values"]["rows"]), 1)
        self.assertEqual(check["values"]["left_out"][0]["reason"], "mayfly: no")

    def test_the_next_check_follows_a_failure(self):
        self.program("gpu_tests", TESTS % (0, 1, "failed", 1))
        code, _, report = self.check()
        self.assertEqual(code, 1)
        self.expect_whole(report)
        self.assertEqual(self.results(report)["tests"], "failed")
        self.assertIn("A.B", report["checks"]["tests"]["reason"])
        self.assertEqual(self.results(report)["elasticity"], "passed")

    def test_another_digest_is_a_failure(self):
        self.program("mayfly", MAYFLY % (SUMMARY % ("5", "4")))
        code, _, report = self.check()
        self.assertEqual(code, 1)
        self.assertEqual(self.results(report)["repetition"], "passed", report)
        self.assertEqual(self.results(report)["nccl"], "passed", report)
        for name in ("elasticity", "nccl_elasticity", "fp16"):
            self.assertIn("digest 5 instead of 4", report["checks"][name]["reason"])

    def test_a_worker_that_never_joined_is_a_failure(self):
        self.program("mayfly", MAYFLY % (SUMMARY.replace("lost joined", "lost") % ("1234", "1234")))
        code, _, report = self.check()
        self.assertEqual(code, 1)
        self.expect_whole(report)
        for name in ("elasticity", "nccl_elasticity", "fp16"):
            self.assertIn("1 losses and 0 joins", report["checks"][name]["reason"])

    def test_losses_that_differ_from_the_cpus_are_a_failure(self):
        self.program("mayfly", (MAYFLY % (SUMMARY % ("1234", "1234"))).replace("2.5001", "2.51"))
        code, _, report = self.check()
        self.assertEqual(code, 1)
        self.assertIn("losses differ by 4.00e-03", report["checks"]["against_cpu"]["reason"])

    def test_what_hangs_is_ended_and_the_rest_is_said_to_be_left_out(self):
        self.program("mayfly", MAYFLY % "sleep 60 & wait")
        code, _, report = self.check("--seconds", "9", "--beside", "1")
        self.assertEqual(code, 1)
        self.expect_whole(report)
        self.assertIn("not done after", report["checks"]["against_cpu"]["reason"])
        self.assertEqual(report["checks"]["elasticity"]["reason"], "no time is left")

    def test_a_build_without_training_on_gpus_skips_it(self):
        (self.folder / "bin" / "libmayfly_cuda.so").unlink()
        code, _, report = self.check()
        self.assertEqual(code, 0)
        self.expect_whole(report)
        self.assertEqual(self.results(report)["training"], "skipped")
        self.assertEqual(self.results(report)["elasticity"], "skipped")

    def test_no_gpu_is_one_line_an_exit_code_and_a_report(self):
        self.program("gpu_tests", "#!/bin/sh\necho 'no GPU: no driver'\n")
        code, output, report = self.check()
        self.assertEqual((code, output), (2, "no GPU: no driver\n"))
        self.assertEqual(report["result"], "no GPU")
        self.assertEqual(report["reason"], "no GPU: no driver")


if __name__ == "__main__":
    unittest.main()
