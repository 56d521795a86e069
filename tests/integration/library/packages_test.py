"""Goal: each kind of installation is complete and sufficient for users' own programs.
Method: `cmake --install`, Debian packages and the wheel, used without the build folder.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import mayfly_run
from mayfly_run import expect

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
PYTHON = "/usr/bin/python3"  # the one that has NumPy
BUILT = os.path.dirname(os.path.abspath(mayfly_run.BINARY))
OWN = {name: value for name, value in os.environ.items()
       if not name.startswith(("MAYFLY_", "PYTHON"))}


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False,
                          **options)
    expect(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def installed():
    """The files of `cmake --install` are sufficient to build and run a program."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    prefix = os.path.join(folder, "usr")

    run("cmake", "--install", BUILT, "--prefix", prefix)
    program = os.path.join(prefix, "bin", "mayfly")
    source = os.path.join(folder, "source")
    os.makedirs(source)
    for name in ("linear.c", "linear.cpp"):
        shutil.copy(os.path.join(ROOT, "examples", "library", name), source)
    with open(os.path.join(source, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write("cmake_minimum_required(VERSION 3.25)\nproject(example C CXX)\n"
                   "set(CMAKE_CXX_STANDARD 20)\nfind_package(Mayfly 0.1 REQUIRED)\n"
                   "foreach(kind c cpp)\n  add_executable(linear-${kind} linear.${kind})\n"
                   "  target_link_libraries(linear-${kind} PRIVATE Mayfly::mayfly)\n"
                   "endforeach()\n")
    run("cmake", "-G", "Ninja", "-S", source, "-B", os.path.join(folder, "build"),
        f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", os.path.join(folder, "build"))
    for kind in ("c", "cpp"):
        run(program, "run", "--workers", "2", "--run-dir", os.path.join(folder, f"run-{kind}"),
            "--", os.path.join(folder, "build", f"linear-{kind}"), "50", env=OWN)
    package = os.path.join(prefix, "lib", "python3", "dist-packages")
    version = run(PYTHON, "-c", "import mayfly._abi; print(mayfly._abi.load().mf_version())",
                  env={**OWN, "PYTHONPATH": package})
    expect("0.1.0" in version, version)
    for path in (os.path.join(prefix, "lib", "cmake", "Mayfly", "MayflyConfig.cmake"),
                 os.path.join(prefix, "lib", "pkgconfig", "mayfly.pc")):
        with open(path, encoding="utf-8") as file:
            expect(BUILT not in file.read(), f"{path} names the folder where it was built")
    shutil.rmtree(folder)


def packaged():
    """The Debian packages have the expected files, and depend on no unexpected package."""
    if shutil.which("cpack") is None or shutil.which("dpkg-shlibdeps") is None:
        print("no cpack or dpkg-shlibdeps")
        sys.exit(mayfly_run.SKIP)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    done = subprocess.run(["cpack", "-G", "DEB", "-B", folder, "-D",
                           "CPACK_DEBIAN_COMPRESSION_TYPE=none"], cwd=BUILT, capture_output=True,
                          text=True, timeout=250)
    expect(done.returncode == 0, done.stdout + done.stderr)
    names = {name.split("_")[0]: os.path.join(folder, name) for name in os.listdir(folder)
             if name.endswith(".deb")}
    expect(sorted(names) == ["libmayfly-dev", "libmayfly0", "mayfly", "python3-mayfly"], names)

    def ask(option, name):
        return subprocess.run(["dpkg-deb", option, names[name]], capture_output=True, text=True,
                              check=True).stdout

    for name, path in (("mayfly", "./usr/bin/mayfly"), ("libmayfly0", "./usr/lib/libmayfly.so.0"),
                       ("libmayfly-dev", "./usr/include/mayfly/job.hpp"),
                       ("python3-mayfly", "./usr/lib/python3/dist-packages/mayfly/torch/job.py")):
        expect(path in ask("--contents", name), f"{name} lacks {path}")
    needed = ask("--field", "libmayfly0")
    expect("libdnnl" not in needed and "libgomp" not in needed, needed)
    shutil.rmtree(folder)


def wheel():
    """The wheel is sufficient to run a program, alone and with workers."""
    if subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True).returncode:
        print(f"{PYTHON} has no numpy")
        sys.exit(mayfly_run.SKIP)
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    script = os.path.join(ROOT, "scripts", "wheel")
    path = run(sys.executable, "-B", script, folder, BUILT).strip()
    site = os.path.join(folder, "site")
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        with zipfile.ZipFile(path) as archive:  # what pip does with a wheel
            for member in archive.infolist():
                os.chmod(archive.extract(member, site), member.external_attr >> 16)
    else:
        run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
            "--target", site, path)
    digests = set()
    program = [PYTHON, "-B", os.path.join(HERE, "arrays_program.py"), "30"]
    for place, command in (("two", [PYTHON, "-m", "mayfly._program", "run", "--workers", "2",
                                    "--run-dir", f"{folder}/two", "--", *program]),
                           ("one", program)):
        run(*command, cwd=folder,
            env={**OWN, "PYTHONPATH": site, "MAYFLY_RUN_DIR": f"{folder}/{place}"})
        with open(f"{folder}/{place}/summary.json", encoding="utf-8") as file:
            digests.add(json.load(file)["final_digest"])
    expect(len(digests) == 1, f"{digests}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(mayfly_run.main({"installed": installed, "packaged": packaged, "wheel": wheel}))
