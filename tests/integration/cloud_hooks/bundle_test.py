"""Goal: the archive of `mayfly bundle` runs on a server without Mayfly, with the modules for GPUs
if this program has them. cuDNN and NCCL are found where packages install them. `mayfly cloud
doctor` reports, before servers are paid for, whether a bundle and its machines can use GPUs.
Method: the archive is unpacked elsewhere and run with an empty environment. No GPU is needed.
"""
import os
import shutil
import subprocess
import tarfile
import tempfile

import mayfly_run
from fake_cloud_job import bundle_of
from mayfly_run import expect

HERE = os.path.dirname(os.path.abspath(mayfly_run.BINARY))
MODULES = [name for name in ("cuda", "nccl", "mpi")
           if os.path.exists(os.path.join(HERE, f"libmayfly_{name}.so"))]


def unpacked(folder):
    with tarfile.open(bundle_of(mayfly_run.BINARY)) as archive:
        archive.extractall(folder)
    return os.path.join(folder, "mayfly")


def run(*argv, **environment):
    return subprocess.run(argv, env={"PATH": os.environ["PATH"], **environment},
                          capture_output=True, text=True, timeout=120)


def modules():
    with tempfile.TemporaryDirectory(prefix="mayfly-bundle-") as folder:
        inside = unpacked(folder)
        packed = sorted(os.listdir(os.path.join(inside, "bin")))
        for name in MODULES:
            expect(f"libmayfly_{name}.so" in packed, f"{name} is packed: {packed}")
        libraries = os.listdir(os.path.join(inside, "lib"))
        strange = [name for name in libraries
                   if name.startswith(("libcudnn", "libnccl", "libc.so", "libmpi", "ld-linux"))]
        expect(not strange, f"belong to the server: {strange}")
        done = run(os.path.join(inside, "mayfly"), "train", "--device", "cuda", "--data",
                   "procedural", "--steps", "1", "--run-dir", os.path.join(folder, "run"))
        if "cuda" in MODULES and not os.path.exists("/proc/driver/nvidia/version"):
            expect(done.returncode == 2 and "no NVIDIA driver" in done.stderr,
                   f"the module was loaded, and looked for a driver: {done}")


def libraries_of_packages():
    """Runs the start script with a program that prints the loader's search path."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bundle-") as folder:
        inside = unpacked(folder)
        program = os.path.join(inside, "bin", "mayfly")
        with open(program, "w") as f:
            f.write('#!/bin/sh\nprintf "%s" "$LD_LIBRARY_PATH"\n')
        os.chmod(program, 0o755)
        open(os.path.join(inside, "bin", "libmayfly_cuda.so"), "w").close()
        nvidia = os.path.join(folder, "env", "lib", "python3.11", "site-packages", "nvidia")
        places = {"libcudnn.so.9": "cudnn/lib", "libnccl.so.2": "nccl/lib"}
        for name, place in places.items():
            os.makedirs(os.path.join(nvidia, place))
            open(os.path.join(nvidia, place, name), "w").close()
        tools = os.path.join(folder, "tools")  # an ldconfig that lists no libraries
        os.mkdir(tools)
        with open(os.path.join(tools, "ldconfig"), "w") as f:
            f.write("#!/bin/sh\n")
        os.chmod(os.path.join(tools, "ldconfig"), 0o755)
        environment = {"VIRTUAL_ENV": os.path.join(folder, "env"),
                       "PATH": tools + ":" + os.environ["PATH"], "HOME": folder}
        found = run(os.path.join(inside, "mayfly"), **environment).stdout.split(":")
        for name, place in places.items():
            expect(any(os.path.exists(os.path.join(each, name)) for each in found),
                   f"{name} is found: {found}")
        mine = os.path.join(folder, "mine")
        os.mkdir(mine)
        for name in places:
            open(os.path.join(mine, name), "w").close()
        found = run(os.path.join(inside, "mayfly"), LD_LIBRARY_PATH=mine, **environment).stdout
        expect(found.split(":")[0] == mine and nvidia not in found, f"the user's wins: {found}")
        os.remove(os.path.join(inside, "bin", "libmayfly_cuda.so"))
        found = run(os.path.join(inside, "mayfly"), **environment).stdout
        expect(found == "", f"nothing is looked for: {found}")


def folder_of_a_program():
    """`mayfly bundle` does not pack files that runs and tools leave in the program's folder. It
    packs the targets of symbolic links, and may write the archive into the folder."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bundle-") as folder, \
            tempfile.TemporaryDirectory(prefix="mayfly-bundle-") as elsewhere:
        with open(os.path.join(elsewhere, "linked.py"), "w") as f:
            f.write("linked.py")
        os.symlink(os.path.join(elsewhere, "linked.py"), os.path.join(folder, "other.py"))
        os.symlink(elsewhere, os.path.join(folder, "package"))
        for name in ("train.py", "src/runs/model.py", "mine/a/events.jsonl", "mine/a/token",
                     ".git/config", ".cache/x", "src/__pycache__/m.pyc"):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "w") as f:
                f.write(name)
        archive = os.path.join(folder, "mine.tar.gz")
        for _ in range(2):
            done = run(mayfly_run.BINARY, "bundle", "--program-dir", folder, archive)
            expect(done.returncode == 0, done.stderr)
        with tarfile.open(archive) as packed:
            names = packed.getnames()
            inside = sorted(name for name in names if name.startswith("mayfly/program/")
                            and not packed.getmember(name).isdir())
        expect(inside == ["mayfly/program/other.py", "mayfly/program/package/linked.py",
                          "mayfly/program/src/runs/model.py", "mayfly/program/train.py"], inside)
        expect("mayfly/lib/python/mayfly/_job.py" in names, names)
        unpack = os.path.join(folder, "x")
        os.mkdir(unpack)
        subprocess.run(["tar", "-xzf", archive, "-C", unpack], check=True)
        library = os.path.join(unpack, "mayfly/lib/mayfly/libmayfly.so.0")
        found = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
        used = [line.split()[2] for line in found.splitlines() if "=>" in line]
        expect(any(path.startswith(os.path.realpath(unpack)) or path.startswith(unpack)
                   for path in used), f"its libraries come along: {found}")
        with open(os.path.join(folder, "data"), "wb") as f:
            f.truncate(257 << 20)
        done = run(mayfly_run.BINARY, "bundle", "--program-dir", folder, archive + "2")
        expect(done.returncode == 2 and folder in done.stderr and "256 MiB" in done.stderr, done)
        expect(not os.path.exists(archive + "2"), "nothing half-written is left")


def doctor():
    """The doctor with an exec provider that reports no errors: all remarks are Mayfly's own."""
    with tempfile.TemporaryDirectory(prefix="mayfly-bundle-") as folder:
        content = os.path.join(folder, "content.sh")
        with open(content, "w") as f:
            f.write("#!/bin/sh\necho '{\"findings\": [{\"ok\": true, \"text\": \"fine\"}]}'\n")
        os.chmod(content, 0o755)

        def examine(*more):
            return run(mayfly_run.BINARY, "cloud", "doctor", "--cloud-provider", "exec",
                       "--cloud-command", content, *more)

        gpus = ("--device", "cuda", "--cloud-offers")
        done = examine("--cloud-offers", "p3.2xlarge=1")
        expect(done.returncode == 0 and "GPU" not in done.stdout, f"a job on CPUs: {done}")
        done = examine(*gpus, "p3.2xlarge=1")
        expect(done.returncode == 2 and "compute capability 7.0" in done.stderr and
               len(done.stderr.splitlines()) == 1, f"too old: {done}")
        done = examine(*gpus, "p5.48xlarge=9,unheard.of=2")
        expect(done.returncode == 0 and "NVIDIA H100, compute capability 9.0" in done.stdout and
               "unheard.of is not known" in done.stdout, f"new enough: {done}")

        bundle = bundle_of(mayfly_run.BINARY)
        done = examine(*gpus, "p5.48xlarge=9", "--cloud-bundle", bundle)
        words = "has the module" if "cuda" in MODULES else "no libmayfly_cuda.so"
        expect(words in done.stdout, f"of this program: {done}")
        inside = unpacked(folder)
        for name in MODULES:
            os.remove(os.path.join(inside, "bin", f"libmayfly_{name}.so"))
        poor = os.path.join(folder, "poor.tar.gz")
        with tarfile.open(poor, "w:gz", compresslevel=1) as archive:
            archive.add(inside, "mayfly")
        done = examine(*gpus, "p5.48xlarge=9", "--cloud-bundle", poor)
        expect(done.returncode == 1 and "no libmayfly_cuda.so" in done.stdout, f"none: {done}")
        shutil.copy(__file__, poor)
        done = examine(*gpus, "p5.48xlarge=9", "--cloud-bundle", poor)
        expect(done.returncode == 1 and "missing  bundle " in done.stdout, f"no archive: {done}")


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({"modules": modules, "doctor": doctor,
                                      "libraries_of_packages": libraries_of_packages,
                                      "folder_of_a_program": folder_of_a_program}))
