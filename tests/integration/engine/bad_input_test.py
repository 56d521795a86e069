"""Goal: bad input ends with exit code 2 (or a continued job) and one clear line, and loses nothing.
Method: each case starts the binary with one error and checks the exit code and the text.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import SMALL_JOB, Run, expect, lingering

STEPS = ["--steps", "12", "--workers", "2", "--threads", "1"]
RECORD = 3073


def everything_in(folder):
    """The contents of all files below a folder by path; None for folders."""
    found = {}
    for path in pathlib.Path(folder).rglob("*"):
        found[str(path.relative_to(folder))] = path.read_bytes() if path.is_file() else None
    return found


def changes(before, after):
    return sorted(path for path in before.keys() | after.keys()
                  if before.get(path, ()) != after.get(path, ()))


def refused(args, *words, code=2, given=None):
    """Expects that the arguments are refused, and that the current folder then contains only the
    files that were `given`: texts by path."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    for name, text in (given or {}).items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, 0o600)
    before = everything_in(folder)
    done = subprocess.run([mayfly_run.BINARY] + args, capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, cwd=folder)
    text = done.stdout + done.stderr
    expect(done.returncode == code, f"{args}: exit code {done.returncode}, not {code}\n{text}")
    for word in words:
        expect(word in text, f"{args}: '{word}' is not in the message\n{text}")
    expect(len(text.strip().splitlines()) <= 2, f"{args}: more than one clear line\n{text}")
    changed = changes(before, everything_in(folder))
    expect(not changed, f"{args}: left behind or changed {changed}")
    shutil.rmtree(folder)


def cifar_folder(batch_bytes):
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    for i in range(1, 6):
        with open(f"{folder}/data_batch_{i}.bin", "wb") as f:
            f.write(batch_bytes)
    with open(f"{folder}/test_batch.bin", "wb") as f:
        f.write(batch_bytes)
    return folder


def flags():
    refused(["train", "--globel-batch", "64"], "global-batch")
    refused(["train", "--global-batch", "128", "--microbatch", "48"], "128", "48")
    refused(["train", "--model", "resnet21"], "resnet20")
    refused(["train", "--backend", "tpc"], "tcp")
    refused(["train", "--backend", "nccl"], "GPU memory", "device is cpu", "use backend tcp")
    refused(["train", "--device", "gpu"], "cuda:N")
    refused(["train", "--device", "cuda", "--isa", "avx2"], "device is cuda")
    refused(["train", "--device", "cuda", "--threads", "4"], "a worker has one GPU")
    # This machine lacks the CUDA module or a driver, or has at most a thousand GPUs.
    refused(["train", "--device", "cuda:1000", "--data", "procedural:256"],
            "device cuda cannot be used")
    refused(["train", "--reduction", "exakt"], "exact")
    refused(["train", "--conv-kernels", "wingorad"], "winograd")
    refused(["train", "--dtype", "bf61"], "bf16")
    refused(["train", "--isa", "avx2", "--dtype", "bf16"], "AVX512-BF16")
    refused(["train", "--dtype", "fp16"], "dtype fp16 is for GPUs, but device is cpu")
    refused(["bench", "step", "--dtype", "fp16"], "dtype fp16 is for GPUs, but device is cpu")
    refused(["inspect", "--memory", "--dtype", "fp16"], "dtype fp16 is for GPUs")
    refused(["train", "--device", "cuda", "--dtype", "fp16", "--sync", "bsp"],
            "do not support a loss scale")
    refused(["train", "--lr", "fast"], "lr")
    refused(["train", "--chaos", "explode@step=3"], "explode")
    refused(["trian"], "train")
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    with open(f"{folder}/job.toml", "w") as f:
        f.write('model = "resnet20"\nglobal_bach = 64\n')
    refused(["train", "--config", f"{folder}/job.toml"], "job.toml", "2", "global_batch")
    shutil.rmtree(folder)


def data_files():
    refused(["train", "--data", "/nonexistent/cifar"], "/nonexistent/cifar")
    record = bytes(RECORD)
    folder = cifar_folder(record * 10000)
    os.truncate(f"{folder}/data_batch_3.bin", RECORD * 10000 - 1)
    refused(["train", "--data", folder], "data_batch_3.bin", str(RECORD * 10000),
            str(RECORD * 10000 - 1))
    os.truncate(f"{folder}/data_batch_3.bin", RECORD * 10000)
    with open(f"{folder}/data_batch_2.bin", "r+b") as f:
        f.seek(RECORD * 7)
        f.write(b"\x0b")
    refused(["train", "--data", folder], "data_batch_2.bin", "7", "11")
    with open(f"{folder}/data_batch_2.bin", "r+b") as f:
        f.seek(RECORD * 7)
        f.write(b"\x00")
    os.remove(f"{folder}/data_batch_5.bin")
    refused(["train", "--data", folder], "data_batch_5.bin")
    shutil.rmtree(folder)


def checkpoints():
    run = Run(SMALL_JOB + STEPS + ["--checkpoint-every", "5"])
    run.finish()
    torn = run.path("checkpoints", "step-10")
    resume = ["train"] + SMALL_JOB + STEPS + ["--resume", torn]
    refused(["train"] + SMALL_JOB + STEPS + ["--model", "resnet32", "--resume", torn], "resnet20")
    model = os.path.join(torn, "model.safetensors")
    with open(model, "r+b") as f:
        f.seek(os.path.getsize(model) // 2)
        byte = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([byte[0] ^ 1]))
    refused(resume, "model.safetensors")
    os.truncate(model, os.path.getsize(model) - 100)
    refused(resume, "model.safetensors")
    refused(["train", "--resume", run.folder + "/nothing"], "nothing")
    run.remove()


def initial_weights():
    run = Run(SMALL_JOB + ["--steps", "1", "--threads", "1"])
    run.finish()
    weights = run.folder + "/weights.safetensors"
    done = subprocess.run([mayfly_run.BINARY, "export", run.run_dir, "--output", weights],
                          capture_output=True, text=True, timeout=60)
    expect(done.returncode == 0, f"export: {done.stderr}")
    small = ["train"] + SMALL_JOB + STEPS
    refused(small + ["--init-from", "/nonexistent/weights"], "/nonexistent/weights")
    refused(small + ["--model", "resnet32", "--init-from", run.run_dir], "resnet20", "resnet32")
    refused(small + ["--model", "resnet32", "--init-from", weights], weights,
            "layer1.3.conv1.weight", "missing")
    with open(weights, "r+b") as f:
        content = f.read().replace(b'"layer2.0.conv1.weight"', b'"layer2.0.conv1.weigth"')
        f.seek(0)
        f.write(content)
    refused(small + ["--init-from", weights], "layer2.0.conv1.weigth",
            "did you mean layer2.0.conv1.weight?")
    os.truncate(weights, 5)
    refused(small + ["--init-from", weights], weights, "no safetensors file")
    run.remove()


def nan_loss():
    run = Run(SMALL_JOB + ["--steps", "200", "--workers", "2", "--threads", "1", "--lr", "1e30",
                           "--checkpoint-every", "1"])
    code = run.wait()
    expect(code == 1, f"exit code {code}\n{run.logs()}")
    text = run.output()
    expect("step" in text and ("NaN" in text or "infinite" in text), text)
    expect(run.summary()["outcome"] == "failed", "summary does not say failed")
    run.remove()


def wrong_workers():
    other = Run(SMALL_JOB + ["--steps", "1", "--threads", "1"])
    other.finish()
    run = Run(SMALL_JOB + ["--steps", "150", "--workers", "2", "--threads", "1"] + lingering(3))
    run.wait_for_step(3)
    with open(run.path("coordinator")) as f:
        endpoint = f.read().strip()
    join = ["worker", "--config", run.path("config.toml"), "--coordinator", endpoint]
    bad_token = run.folder + "/token"
    with open(bad_token, "w") as f:
        f.write("00" * 32 + "\n")
    os.chmod(bad_token, 0o600)
    wrong = [(["--token-file", bad_token], "token"), (["--model", "resnet32"], "resnet32"),
             (["--data", "procedural:1024"], "data"),
             (["--init-from", other.run_dir], "initial weights"),
             (["--conv-kernels", "direct"], "convolution kernels")]
    if other.summary()["isa"] == "avx512":
        wrong.append((["--isa", "avx2"], "instruction"))
    for args, word in wrong:
        done = subprocess.run([mayfly_run.BINARY] + join + args, capture_output=True, text=True,
                              timeout=60)
        text = done.stdout + done.stderr
        expect(done.returncode == 2, f"{args}: exit code {done.returncode}\n{text}")
        expect(word in text, f"{args}: the reason does not name '{word}'\n{text}")
    expect(run.finish()["membership_changes"] == 0, "the job was touched")
    run.remove()
    other.remove()


def port_in_use():
    run = Run(SMALL_JOB + ["--steps", "100", "--workers", "1", "--threads", "1"] + lingering(1))
    run.wait_for_step(1)
    with open(run.path("coordinator")) as f:
        port = f.read().strip().rsplit(":", 1)[1]
    busy = ["train"] + SMALL_JOB + STEPS + ["--port", port]
    refused(busy, port)
    refused(["coordinator", "--bind-host", "127.0.0.1"] + SMALL_JOB
            + ["--steps", "1", "--port", port], port)
    refused(busy + ["--run-dir", "x/y/run"], port)
    # A refused command keeps the contents of an existing folder, also those of an earlier run.
    refused(busy + ["--run-dir", "x/run"], port, given={"x/run/notes.txt": "mine"})
    refused(busy + ["--run-dir", "x/run"], port, given={"x/run/logs/old.log": "mine",
                                                        "x/run/tb/events.out.tfevents.1": "mine",
                                                        "x/run/token": "ab" * 32 + "\n"})
    refused(busy + ["--run-dir", "x/run"], "already holds a run",
            given={"x/run/events.jsonl": "{}\n", "x/run/config.toml": "lr = 1\n"})
    refused(["train"] + SMALL_JOB + STEPS + ["--run-dir", "x"], "x is a folder of runs",
            given={"x/run/events.jsonl": "{}\n"})
    refused_resume(port)
    run.finish()
    run.remove()


def refused_resume(port):
    """A refused --resume leaves the ended run unchanged."""
    ended = Run(SMALL_JOB + ["--steps", "4", "--workers", "1", "--threads", "1",
                             "--trace", "auto"])
    ended.finish()
    before = everything_in(ended.run_dir)
    more = ["train"] + SMALL_JOB + ["--steps", "8", "--workers", "1", "--threads", "1",
                                    "--run-dir", ended.run_dir, "--resume", ended.run_dir,
                                    "--trace", "auto"]
    refused(more + ["--lr", "0.2", "--port", port], port)
    changed = changes(before, everything_in(ended.run_dir))
    # The lock file names the last process that took it.
    expect(changed == ["view.log.lock"], f"a refused --resume changed {changed}")
    ended.remove()


def places():
    """Errors that are detected only after the run directory was made."""
    job = ["train"] + SMALL_JOB + STEPS
    refused(job + ["--bind-host", "no.such.host.invalid"], "no.such.host.invalid")
    refused(job + ["--bind-host", "203.0.113.7"], "203.0.113.7")  # RFC 5737: reserved for examples
    refused(job + ["--token-file", "token"], "is not a job token", given={"token": "zz\n"})
    refused(job + ["--run-dir", "file/run"], "file/run", given={"file": "mine"})
    refused(job + ["--run-dir", "run", "--quiet"], "worker-0.log", code=1,
            given={"run/logs/worker-0.log/notes.txt": "mine"})
    refused(["coordinator"] + SMALL_JOB + ["--steps", "1", "--cloud-provider", "gce"],
            "Google project")


def worker_refuses():
    """If only a worker can detect the error, its log is kept, and the error names the log's
    file."""
    run = Run(SMALL_JOB + STEPS + ["--resident-mib", "99999999"])
    code = run.wait()
    expect(code == 2, f"exit code {code}\n{run.logs()}")
    lines = run.output().splitlines()
    expect(len(lines) == 1, f"said {lines}")
    found = re.fullmatch(r"mayfly: resident_mib: .* \(log: (.*/logs/worker-[01]\.log)\)", lines[0])
    expect(found is not None, f"said {lines}")
    with open(found.group(1)) as f:
        expect("resident_mib" in f.read(), f"{found.group(1)} does not say it")
    run.remove()


def damaged_view_log():
    """A job is not continued from the intact part of a damaged view log, because the rest may have
    recorded anything. The log is not changed."""
    run = Run(SMALL_JOB + ["--steps", "100", "--workers", "1", "--threads", "1"] + lingering(1))
    run.wait_for_step(1)
    run.stop_hard()  # ends the coordinator together with its worker
    with open(run.path("view.log"), "rb") as f:
        content = bytearray(f.read())
    for place in (20, 200):  # in the first record, which intact records follow
        damaged = bytearray(content)
        damaged[place] ^= 1
        with open(run.path("view.log"), "wb") as f:
            f.write(damaged)
        before = everything_in(run.run_dir)
        refused(["coordinator", "--run-dir", run.run_dir], run.path("view.log"), "at byte 16 ",
                "is damaged", "--resume")
        changed = changes(before, everything_in(run.run_dir))
        expect(changed in ([], ["view.log.lock"]), f"changed {changed}")
    run.remove()


def disk_full():
    """Checkpoints fill a small file system after a while. Training goes on, and the job reports the
    failure at its end."""
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder],
                             capture_output=True)
    if mounted.returncode != 0:
        print("skipped part: cannot mount a small file system here")
        shutil.rmtree(folder)
        return
    try:
        run = Run(SMALL_JOB + ["--steps", "30", "--workers", "2", "--threads", "1",
                               "--checkpoint-every", "10", "--keep-checkpoints", "9"],
                  run_dir=folder + "/run")
        code = run.wait()
        text = run.output()
        expect(code == 1 and "Failed (the last state is lost: " in text, f"{code}\n{text}")
        expect(run.last_step() == 30, "training did not go on")
        expect("not saved" in text, f"no word about the full disk\n{text}")
        good = subprocess.run([mayfly_run.BINARY, "digest", run.path("checkpoints", "step-10")],
                              capture_output=True, text=True)
        expect(good.returncode == 0, f"the good checkpoint is gone: {good.stderr}")
        left = os.listdir(run.path("checkpoints"))
        expect(not [name for name in left if "tmp" in name], f"half-written: {left}")
    finally:
        subprocess.run(["umount", "-l", folder])
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "flags": flags, "data_files": data_files, "checkpoints": checkpoints,
        "initial_weights": initial_weights, "nan_loss": nan_loss,
        "wrong_workers": wrong_workers, "port_in_use": port_in_use, "places": places,
        "worker_refuses": worker_refuses, "damaged_view_log": damaged_view_log,
        "disk_full": disk_full}))
