"""Tests of the checks: each detects faults that are planted in a small tree, and accepts the same
tree without them."""

import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import types
import unittest
import unittest.mock

import docs
import figure_claims
import figures
import gpu_reports
import headers
import layers
import mutants
import purity
import scripts
import sizes
import text
import third_party

TABLE = """# L0
base ->
# L1
elastic/core -> base
nn -> base
# L2
nn/cpu -> base nn
# L4
tests -> *
"""
LONG_BODY = "".join(f"  value += {i};\n" for i in range(70))


class SelfTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="lint"))
        self.addCleanup(shutil.rmtree, self.root)
        self.write("docs/layers.txt", TABLE)
        self.write("docs/ratchet.txt", "")
        self.write("base/ids.hpp", "#pragma once\n#include <cstdint>\n")
        to_ids = '#pragma once\n#include "base/ids.hpp"\n'
        self.write("elastic/core/member.hpp", to_ids)
        self.write("nn/model.hpp", to_ids)
        self.write("nn/cpu/engine.hpp", to_ids + '#include "nn/model.hpp"\n')

    def write(self, name, content):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def expect(self, found, *parts):
        self.assertEqual(len(found), 1, found)
        for part in parts:
            self.assertIn(part, found[0])

    def test_a_clean_tree_has_no_problems(self):
        for check in (docs, layers, purity, scripts, sizes, text):
            self.assertEqual(check.problems(self.root), [], check.__name__)

    def report(self, **changes):
        whole = {"kind": "gpu-report", "version": 1, "started": "2026-01-02T03:04:05Z",
                 "finished": "2026-01-02T03:09:05Z", "commit": "a" * 40,
                 "uncommitted_changes": False, "gpu": "H200", "cuda": "13.0", "nccl": "2.28.9",
                 "result": "passed", "checks": {"tests": {"result": "passed", "seconds": 1.5}},
                 "clocks_before": {}, "clocks_after": {}}
        self.write("benchmarks/results/gpu/one.json", json.dumps({**whole, **changes}))

    def test_gpu_reports_wants_documents_that_fit(self):
        self.write("README.md", "GPU code is untested on a\ndevice.\n")
        self.assertEqual(gpu_reports.problems(self.root), [])
        self.report()
        self.expect(gpu_reports.problems(self.root), "README.md", "one.json")
        self.write("README.md", "Fast.\n")
        self.assertEqual(gpu_reports.problems(self.root), [])
        (self.root / "benchmarks/results/gpu/one.json").unlink()
        self.expect(gpu_reports.problems(self.root), "README.md", "untested on a device")

    def test_gpu_reports_refuses_what_is_not_whole(self):
        self.report(gpu=None)
        self.expect(gpu_reports.problems(self.root), "one.json", "'gpu'")
        self.report(commit="abc")
        self.expect(gpu_reports.problems(self.root), "not a commit")
        self.report(checks={"tests": {"result": "skipped", "seconds": 0}})
        self.expect(gpu_reports.problems(self.root), "does not say why")
        self.report(checks={"tests": {"result": "failed", "seconds": 0, "reason": "it hung"}})
        self.expect(gpu_reports.problems(self.root), "the report did not")
        self.write("benchmarks/results/gpu/one.json", "{")
        self.expect(gpu_reports.problems(self.root), "one.json")

    def test_layers_refuses_an_edge_upwards(self):
        self.write("nn/model.cpp", '#include "nn/cpu/engine.hpp"\n')
        self.expect(layers.problems(self.root), "nn/model.cpp:1", "nn may not include nn/cpu")

    def test_layers_refuses_an_edge_between_siblings(self):
        self.write("elastic/core/view.hpp", '#pragma once\n#include "nn/model.hpp"\n')
        self.expect(layers.problems(self.root), "elastic/core may not include nn")

    def test_layers_refuses_an_entry_that_nothing_uses(self):
        self.write("nn/cpu/engine.hpp", '#pragma once\n#include "nn/model.hpp"\n')
        self.expect(layers.problems(self.root), "layers.txt: nn/cpu includes nothing of base")

    def test_layers_refuses_a_library_that_links_upwards(self):
        self.write("nn/cpu/CMakeLists.txt", "mayfly_library(nn_cpu SOURCES a.cpp PUBLIC mayfly_nn)")
        self.write("nn/CMakeLists.txt", "mayfly_library(nn\n  SOURCES a.cpp cpu/b.cpp  # one\n"
                   "  PUBLIC fmt::fmt mayfly_nn_cpu)\n")
        self.expect(layers.problems(self.root), "nn/CMakeLists.txt: mayfly_nn links", "nn/cpu")

    def test_layers_wants_a_room_to_link_what_it_may_include(self):
        self.write("docs/layers.txt", TABLE + "engine/run -> base nn\n")
        self.write("engine/run/run.hpp",
                   '#pragma once\n#include "base/ids.hpp"\n#include "nn/model.hpp"\n')
        self.write("base/CMakeLists.txt", "mayfly_library(base SOURCES a.cpp)")
        self.write("nn/CMakeLists.txt", "mayfly_library(nn SOURCES a.cpp PUBLIC mayfly_base)")
        self.write("engine/run/CMakeLists.txt", "mayfly_library(engine_run PUBLIC mayfly_base)")
        self.expect(layers.problems(self.root), "mayfly_engine_run links no library of nn")

    def test_layers_refuses_a_path_that_does_not_start_at_the_root(self):
        self.write("nn/model.cpp", '#include "model.hpp"\n')
        self.expect(layers.problems(self.root), "not a path from the root")

    def test_layers_refuses_a_cycle_in_the_table(self):
        self.write("docs/layers.txt", TABLE.replace("base ->\n", "base -> nn\n"))
        self.assertIn("cycle", layers.problems(self.root)[0])

    def test_headers_refuses_one_that_needs_another_first(self):
        self.write("base/bad.hpp", "#pragma once\nstd::string name();\n")
        self.expect(headers.problems(self.root, "g++"), "base/bad.hpp does not compile alone")

    def compile(self, source, *options):
        """Compiles a source as a build does: makes an object and an entry in
        compile_commands.json."""
        build = self.root / "build"
        build.mkdir(exist_ok=True)
        name = source.replace("/", ".") + ".o"
        words = ["g++", *options, "-I", str(self.root), "-o", name, "-c", str(self.root / source)]
        subprocess.run(words, cwd=build, check=True)
        (build / "compile_commands.json").write_text(json.dumps([{
            "directory": str(build), "file": str(self.root / source),
            "command": " ".join(words)}]))
        return build

    def test_headers_believes_the_build_only_what_it_shows(self):
        bad = "base/bad.hpp does not compile alone"
        self.write("base/bad.hpp", "#pragma once\ninline std::string name() { return {}; }\n")
        self.write("base/bad.cpp", '// Own header second.\n#include <string>\n#include '
                                   '"base/bad.hpp"\n')
        self.expect(headers.problems(self.root, "g++", self.compile("base/bad.cpp")), bad)
        self.write("base/bad.cpp", '#include "base/bad.hpp"\n')
        build = self.compile("base/bad.cpp", "-include", "string")
        self.expect(headers.problems(self.root, "g++", build), bad)
        self.expect(headers.problems(self.root, "g++", self.root / "not-built"), bad)

    def test_headers_compiles_what_the_build_has_not(self):
        self.write("base/ids.cpp", '// What it is for.\n#include "base/ids.hpp"\n')
        build = self.compile("base/ids.cpp")
        self.assertEqual(headers.compiled_in(build, self.root), {"base/ids.hpp"})
        self.assertEqual(headers.problems(self.root, "g++", build), [])
        self.write("base/ids.hpp", "#pragma once\nstd::string name();\n")
        later = time.time() + 10
        os.utime(self.root / "base/ids.hpp", (later, later))
        self.assertIn("base/ids.hpp does not compile alone",
                      "".join(headers.problems(self.root, "g++", build)))

    def test_headers_refuses_a_source_that_needs_another_of_its_batch(self):
        self.write("base/first.cpp", '#include <string>\n')
        self.write("base/second.cpp", "std::string name() { return {}; }\n")
        build = self.root / "build/Unity"
        build.mkdir(parents=True)
        batch = build / "unity_0_cxx.cxx"
        batch.write_text("".join(f'#include "{self.root}/base/{name}.cpp"\n'
                                 for name in ("first", "second")))
        build = build.parent
        (build / "compile_commands.json").write_text(json.dumps([{
            "directory": str(build), "file": str(batch),
            "command": f"g++ -I {self.root} -o batch.o -c {batch}"}]))
        self.assertEqual(headers.problems(self.root, "g++", build), [])
        self.expect(headers.problems(self.root, "g++", build, 2),
                    "base/second.cpp does not compile alone")

    def git(self, *words):
        subprocess.run(["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b",
                        *words], check=True, stdout=subprocess.DEVNULL)

    def test_headers_looks_at_a_share_for_each_commit_and_at_what_is_new(self):
        names = [f"base/{number}.hpp" for number in range(400)]
        self.assertEqual(headers.of_this_commit(self.root, names, 4), names, "not a repository")
        self.git("init", "-q")
        shares = []
        for number in range(headers.RECENT_COMMITS + 1):
            self.write("base/7.hpp", f"#pragma once\n// {number}\n" if number < 2 else
                       "#pragma once\n// 1\n")
            self.git("add", "-A")
            self.git("commit", "-q", "--allow-empty", "-m", str(number))
            shares.append(headers.of_this_commit(self.root, names, 4))
            self.assertIn("base/7.hpp", shares[-1])
        self.assertTrue(all(60 < len(share) < 140 for share in shares))
        self.assertGreater(len(set(map(tuple, shares))), 10)
        self.assertGreater(len(set().union(*shares)), 390)
        self.write("base/9.hpp", "#pragma once\n")
        self.assertIn("base/9.hpp", headers.of_this_commit(self.root, names, 4))

    def test_purity_refuses_a_thread_in_a_pure_folder_only(self):
        self.write("nn/cpu/pool.cpp", "#include <thread>\n")
        self.assertEqual(purity.problems(self.root), [])
        self.write("nn/pool.cpp", "// std::thread in a comment is fine\nstd::thread helper;\n")
        self.expect(purity.problems(self.root), "nn/pool.cpp:2", "threads")

    def test_purity_refuses_a_third_party_header_in_a_port(self):
        self.write("nn/step_engine.hpp", "#pragma once\n#include <dnnl.hpp>\n")
        self.expect(purity.problems(self.root), "nn/step_engine.hpp:2")

    def test_text_refuses_long_lines_and_marks_without_issue(self):
        self.write("nn/a.cpp", "// " + "x" * 98 + "\n")
        self.expect(text.problems(self.root), "nn/a.cpp:1", "columns")
        self.write("nn/a.cpp", "// TO" "DO later\n// TO" "DO(#7) later\n")
        self.expect(text.problems(self.root), "nn/a.cpp:1")

    def test_text_refuses_a_comment_that_is_a_fragment(self):
        self.write("nn/a.cpp", "/// O" "f a layer.\nint a;\nint b;  // of a layer\n")
        self.expect(text.problems(self.root), "nn/a.cpp:1", "begins")

    def test_docs_refuses_a_comment_that_names_a_file_that_is_gone(self):
        self.write("nn/a.cpp", "// See nn/model.hpp.\n")
        self.assertEqual(docs.problems(self.root), [])
        self.write("nn/a.cpp", "int a;\nint b;  // as in cpu/model_old.hpp\n")
        self.expect(docs.problems(self.root), "nn/a.cpp:2: there is no model_old.hpp")

    def test_sizes_finds_the_long_function_between_short_ones(self):
        self.write("nn/a.cpp", "namespace n {\nint one() { return 1; }\nint lots(int value) {\n" +
                   LONG_BODY + "  return value;\n}\nstruct S {\n  int x() const { return 2; }\n};\n"
                   "}\n")
        self.expect(sizes.problems(self.root), "nn/a.cpp:lots", "73 lines")
        self.write("docs/ratchet.txt", "function nn/a.cpp:lots 73 one table\n")
        self.assertEqual(sizes.problems(self.root), [])
        self.write("docs/ratchet.txt", "function nn/a.cpp:lots 72 one table\n")
        self.expect(sizes.problems(self.root), "allowed are 72")

    def test_sizes_wants_stale_entries_removed(self):
        self.write("docs/ratchet.txt", "file nn/gone.cpp 500 was long\n")
        self.expect(sizes.problems(self.root), "remove its line")

    def test_scripts_refuses_a_way_out(self):
        self.write("scripts/go", '#!/bin/sh\ncat "../' 'secret"\n')
        (self.root / "scripts/go").chmod(0o755)
        self.expect(scripts.problems(self.root), "scripts/go:2", "leaves the repository")

    def test_third_party_refuses_a_changed_file_and_one_that_notice_does_not_name(self):
        digest = hashlib.sha256(b"theirs\n").hexdigest()
        self.write("third_party/chart/chart.js", "theirs\n")
        self.write("third_party/chart/SHA256SUMS", f"{digest}  chart.js\n")
        self.expect(third_party.problems(self.root), "NOTICE does not name third_party/chart")
        self.write("NOTICE", "It contains third_party/chart.\n")
        self.assertEqual(third_party.problems(self.root), [])
        self.write("third_party/chart/chart.js", "ours\n")
        self.expect(third_party.problems(self.root), "chart.js")
        (self.root / "third_party/chart/chart.js").unlink()
        self.expect(third_party.problems(self.root), "chart.js: is missing")

    def test_mutants_wants_each_place_exactly_once(self):
        bug = types.SimpleNamespace(name="one", file="nn/a.cpp", old="int one;", new="int two;")
        self.write("nn/a.cpp", "int one;\n")
        self.assertEqual(mutants.problems(self.root, [bug]), [])
        self.expect(mutants.problems(self.root, [bug, bug]), "two of that name")
        self.write("nn/a.cpp", "int one;\nint one;\n")
        self.expect(mutants.problems(self.root, [bug]), "one: its old text is 2 times in nn/a.cpp")
        (self.root / "nn/a.cpp").unlink()
        self.expect(mutants.problems(self.root, [bug]), "0 times")

    def test_figures_are_those_of_the_results(self):
        claims = {"README.md": {"sizes": lambda results: [
            f"took {results.row('one', kind='summary')['ms']:.1f} ms"]}}
        whole = ("See [one](benchmarks/results/one.jsonl): a step of `4` ResNet-20 took 1.5 ms.\n")

        def found(text, inside=True):
            begin, end = ("<!-- figures: sizes (begin) -->\n", "<!-- figures: sizes (end) -->\n")
            self.write("README.md", begin + text + end if inside else begin + end + text)
            with unittest.mock.patch.object(figure_claims, "DOCUMENTS", claims):
                return figures.problems(self.root)

        self.write("benchmarks/results/one.jsonl", '{"kind": "event"}\n'
                                                   '{"kind": "summary", "ms": 1.52}\n')
        self.assertEqual(found(whole), [])
        self.expect(found(whole + "Another took 7 ms.\n"), "no result gives 7")
        wrong = found(whole.replace("1.5", "1.4"))
        self.assertEqual(len(wrong), 2, wrong)
        self.assertIn("the results give 'took 1.5 ms'", wrong[0])
        self.assertIn("no result gives 1.4", wrong[1])
        self.assertIn("outside of", found(whole, inside=False)[-1])
        self.write("docs/new.md", "See [one](../benchmarks/results/one.jsonl).\n")
        self.expect(found(whole), "docs/new.md: cites")

    def test_docs_refuses_names_that_do_not_exist(self):
        self.write("README.md", "See `nn/model` and `nn/gone.hpp`.\n")
        self.expect(docs.problems(self.root), "nn/gone.hpp")

    def test_docs_refuses_flags_that_do_not_exist(self):
        self.write("engine/config/config.cpp", 'Setting{"global_batch"};\n')
        self.write("README.md", "`--global-batch 8`\n\n    mayfly train --glabal-batch 8\n")
        self.expect(docs.problems(self.root), "no flag --glabal-batch")

    def test_the_end_of_scripts_test_tells_what_failed_and_groups_what_was_skipped(self):
        here = pathlib.Path(__file__).resolve().parents[2] / "scripts"
        self.write("junit.xml", JUNIT)
        summary = subprocess.run(
            ["awk", "-v", "prefix=release/unit", "-v", f"failures={self.root}/failures.txt",
             "-f", here / "junit.awk", self.root / "junit.xml"],
            check=True, capture_output=True, text=True).stdout
        self.assertEqual(summary.splitlines()[:2],
                         ["passed release/unit: a/b", "failed release/unit: p/q"])
        self.assertEqual((self.root / "failures.txt").read_text(),
                         "== failed release/unit: p/q\n   line 1\n   line <2>\n")
        grouped = subprocess.run(["awk", "-f", here / "skipped.awk"], input=summary, check=True,
                                 capture_output=True, text=True).stdout
        self.assertEqual(grouped, "skipped release/unit: s/1 and 1 more: no AVX\n"
                                  "skipped release/unit: s/3: no GPU\n")


JUNIT = """<testsuite name="mayfly">
<testcase name="a/b" time="0.1" status="run"><system-out>fine</system-out></testcase>
<testcase name="p/q  # GetParam() = (4-byte &lt;02&gt;)" status="fail"><failure message="Failed"/>
<system-out>line 1
line &lt;2&gt;
</system-out>
</testcase>
<testcase name="s/1  # GetParam() = (4-byte &lt;02&gt;)" status="notrun">
<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>x_test.cpp:3: Skipped
no AVX

</system-out>
</testcase>
<testcase name="s/2" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>SKIPPED: no AVX</system-out>
</testcase>
<testcase name="s/3" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
<system-out>SKIPPED: no GPU
</system-out>
</testcase>
</testsuite>
"""


class ReleaseCheckTest(unittest.TestCase):
    """scripts/release-check never removes a folder in which devices of this machine are mounted."""

    def setUp(self):
        path = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "release-check"
        loader = importlib.machinery.SourceFileLoader("release_check", str(path))
        self.check = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("release_check", loader))
        loader.exec_module(self.check)
        self.mounts = []
        self.check.mounts_below = lambda folder: list(self.mounts)
        self.check.run = lambda *words, **_: self.mounts.append(words[-1])
        self.check.shutil = types.SimpleNamespace(copytree=self.interrupted)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lint"))
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "etc").mkdir()
        (self.folder / "etc" / "debian_version").touch()

    def interrupted(self, *_, **__):
        raise KeyboardInterrupt

    def make(self):
        with self.check.Clean(self.folder) as clean:
            clean.make("trixie")

    def test_mounts_are_gone_after_an_interrupt(self):
        def run(words, check):
            self.assertEqual(words[:2], ["umount", "-l"])
            self.mounts.remove(words[2])
        with unittest.mock.patch("subprocess.run", run):
            self.assertRaises(KeyboardInterrupt, self.make)
        self.assertEqual(self.mounts, [])

    def test_the_process_ends_with_a_mount_that_stays(self):
        for run in (lambda words, check: None, self.interrupted):
            with unittest.mock.patch("subprocess.run", run), \
                 unittest.mock.patch("sys.stderr"), \
                 unittest.mock.patch("os._exit", side_effect=SystemExit) as ended:
                self.assertRaises(SystemExit, self.make)
            ended.assert_called_once_with(1)


if __name__ == "__main__":
    unittest.main(argv=["self_test"])
