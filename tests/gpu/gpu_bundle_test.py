"""scripts/gpu-bundle makes an archive that runs on other machines. Tested as far as is possible
without a GPU.

gpu_bundle_test.py BUILD_FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.path.abspath(sys.argv.pop())


class GpuBundleTest(unittest.TestCase):
    def test_it_is_small_has_its_libraries_and_gets_as_far_as_the_probe(self):
        if pathlib.Path("/proc/driver/nvidia/version").exists():
            self.skipTest("there is a GPU: run the bundle by hand")
        with tempfile.TemporaryDirectory(prefix="gpu-bundle") as folder:
            archive = pathlib.Path(folder) / "bundle.tar.gz"
            subprocess.run([ROOT / "scripts" / "gpu-bundle", archive, BUILD], check=True)
            self.assertLess(archive.stat().st_size, 60_000_000)
            with tarfile.open(archive) as tar:
                tar.extractall(folder)
            inside = pathlib.Path(folder) / "mayfly-gpu"
            names = [path.name for path in (inside / "lib").iterdir()]
            self.assertFalse([name for name in names if name.startswith(("libnccl", "libcu"))])
            peer = subprocess.run([inside / "peer" / "compare_pytorch_gpu", "--help"], check=False,
                                  capture_output=True, text=True)
            self.assertEqual(peer.returncode, 0, peer.stderr)
            environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(inside / "lib")}
            version = subprocess.run([inside / "bin" / "mayfly", "version"], env=environment,
                                     capture_output=True, text=True, check=True)
            self.assertIn("mayfly", version.stdout)
            benchmarks = subprocess.run([inside / "bin" / "mayfly", "bench", "--help"],
                                        env=environment, capture_output=True, text=True, check=True)
            self.assertIn("  step  ", benchmarks.stdout)
            report = pathlib.Path(folder) / "report.json"
            run = subprocess.run([inside / "gpu-check", "--report", report], capture_output=True,
                                 text=True, check=False, timeout=90)
            self.assertEqual(run.returncode, 2, run.stdout + run.stderr)
            self.assertEqual(len(run.stdout.splitlines()), 1)
            self.assertTrue(run.stdout.startswith("no GPU: "))
            said = json.loads(report.read_text())
            self.assertEqual(said["result"], "no GPU")
            self.assertEqual(said["reason"], run.stdout.strip())
            self.assertIn("commit", said)


if __name__ == "__main__":
    unittest.main()
