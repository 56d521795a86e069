"""Goal: a folder of JPEGs of any size trains to the same bits with any workers and threads. A bad
image is named: at the start if its header is bad, otherwise when it is read. With --skip-corrupt
the job has the bits of the folder without the bad images, and the run names these.
Method: folders made of three tiny JPEGs; digests of several workers; exit codes and messages.
"""
import base64
import os
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import Run, expect

JOB = ["--model", "resnet20", "--global-batch", "16", "--microbatch", "4", "--lr", "0.05",
       "--seed", "7", "--no-tensorboard", "--digest-every", "1", "--steps", "6",
       "--silence-max-ms", "2000"]

LYING = base64.b64decode("""
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L
2u71////m8H////6/+b9//j/wAALCAAeACgBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgED
AwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RF
RkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJ
ytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/AM1FqdFpztsXPfsKrMcnHr1pyLT0WpeAMnoKrSOWOe/b
2pEWp0WnKMVFK+eB90frUSjJyamRal4AyegpkrFVAH8VV+p+lSIKmUYFRzMclew5r//Z
""")

STANDING = base64.b64decode("""
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDACgcHiMeGSgjISMtKygwPGRBPDc3PHtYXUlkkYCZlo+AjIqgtObDoKrarYqMyP/L
2u71////m8H////6/+b9//j/wAALCAAwABgBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgED
AwIEAwUFBAQAAAF9AQIDAAQRBRIhMUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RF
RkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJ
ytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/AIUWp0WnO2xc9+wqNFqXgDJ6Cq0jljnv29qsKMVFK+eB
90frUSjJyasSvgbRjJ6+1V/vH2qVFqNjk49etORamUVXRanRac7bFz37Cv/Z
""")

CMYK = base64.b64decode("""
/9j/7gAOQWRvYmUAZAAAAAAC/9sAQwAoHB4jHhkoIyEjLSsoMDxkQTw3Nzx7WF1JZJGAmZaPgIyKoLTmw6Cq2q2KjMj/y9ru
9f///5vB////+v/m/f/4/9sAQwErLS08NTx2QUF2+KWMpfj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4+Pj4
+Pj4+Pj4+Pj4+Pj4/8AAFAgAEAAQBAERAAIRAQMRAQQRAP/EAB8AAAEFAQEBAQEBAAAAAAAAAAABAgMEBQYHCAkKC//EALUQ
AAIBAwMCBAMFBQQEAAABfQECAwAEEQUSITFBBhNRYQcicRQygZGhCCNCscEVUtHwJDNicoIJChYXGBkaJSYnKCkqNDU2Nzg5
OkNERUZHSElKU1RVVldYWVpjZGVmZ2hpanN0dXZ3eHl6g4SFhoeIiYqSk5SVlpeYmZqio6Slpqeoqaqys7S1tre4ubrCw8TF
xsfIycrS09TV1tfY2drh4uPk5ebn6Onq8fLz9PX29/j5+v/EAB8BAAMBAQEBAQEBAQEAAAAAAAABAgMEBQYHCAkKC//EALUR
AAIBAgQEAwQHBQQEAAECdwABAgMRBAUhMQYSQVEHYXETIjKBCBRCkaGxwQkjM1LwFWJy0QoWJDThJfEXGBkaJicoKSo1Njc4
OTpDREVGR0hJSlNUVVZXWFlaY2RlZmdoaWpzdHV2d3h5eoKDhIWGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLD
xMXGx8jJytLT1NXW19jZ2uLj5OXm5+jp6vLz9PX29/j5+v/aAA4EAQACEQMRBAAAPwDRdqkorItQs1ADLmXavlrjJHPsKc7U
ASSyCGPPG49BUXJOB1Nawjb3mJuxSALMSepOTX//2Q==
""")


def image_folder(changes=()):
    folder = tempfile.mkdtemp(prefix="mayfly-test-")
    files = {f"train/lying/{i}.jpg": LYING for i in range(9)}
    files.update({f"train/standing/{i}.jpg": STANDING for i in range(8)})
    files.update({"test/lying/1.jpg": LYING, "test/standing/1.jpg": STANDING})
    files.update(changes)
    for name, content in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)
    return folder


def same_bits():
    folder = image_folder()
    subprocess.run(["tar", "-cf", f"{folder}/set.tar", "-C", folder, "train", "test"], check=True)
    digests = []
    for data, args in ((folder, ["--workers", "1", "--threads", "1"]),
                       (folder, ["--workers", "3", "--threads", "2"]),
                       (folder, ["--workers", "2", "--threads", "1", "--loader-threads", "3"]),
                       (f"{folder}/set.tar", ["--workers", "1", "--threads", "2"])):
        run = Run(JOB + args + ["--data", data])
        summary = run.finish()
        expect(summary["data"] == "images", f"the data is called {summary['data']}")
        expect(summary["data_wait_seconds"] >= 0, "the summary does not say how long data took")
        expect(all("data_wait_ms" in line for line in run.metrics()), "a step without data_wait_ms")
        digests.append(summary["final_digest"])
    expect(len(set(digests)) == 1, f"the digests differ: {digests}")
    shutil.rmtree(folder)


def refused(changes, *words):
    folder = image_folder(changes)
    done = subprocess.run([mayfly_run.BINARY, "train", "--data", folder] + JOB,
                          capture_output=True, text=True, timeout=60, cwd=folder)
    text = done.stdout + done.stderr
    expect(done.returncode == 2, f"exit code {done.returncode}, not 2\n{text}")
    for word in words:
        expect(word in text, f"'{word}' is not in the message\n{text}")
    runs = os.listdir(f"{folder}/runs") if os.path.exists(f"{folder}/runs") else []
    expect(set(runs) <= {".cache"}, f"a run directory was left behind: {runs}")
    shutil.rmtree(folder)


def bad_headers():
    refused({"train/lying/3.jpg": CMYK}, "train/lying/3.jpg", "4 channels")
    refused({"train/lying/3.jpg": b"no jpeg"}, "train/lying/3.jpg")
    small = LYING.replace(b"\x00\x1e\x00\x28", b"\x00\x07\x00\x28")  # its height: 7
    expect(small != LYING, "the height was not found in the header")
    refused({"train/lying/3.jpg": small}, "train/lying/3.jpg", "40x7")


def bad_bodies():
    folder = image_folder({"train/lying/3.jpg": LYING[:-40]})
    job = JOB + ["--data", folder, "--threads", "1"]
    run = Run(job + ["--workers", "2"])
    code = run.wait()
    expect(code == 1, f"exit code {code}, not 1\n{run.logs()}")
    expect("train/lying/3.jpg" in run.summary()["detail"], run.summary()["detail"])
    digests = {Run(job + ["--skip-corrupt", "--workers", count]).finish()["final_digest"]
               for count in "12"}
    expect(len(digests) == 1, f"the digests differ: {digests}")
    shutil.rmtree(folder)


def damaged_header(jpeg):
    """The JPEG with a first Huffman table that claims 200 codes of one bit."""
    at = jpeg.index(b"\xff\xc4") + 5
    return jpeg[:at] + b"\xc8" + jpeg[at + 1:]


def left_out():
    names = ["train/lying/0.jpg", "train/standing/5.jpg", "train/standing/7.jpg"]
    healthy = {f"train/lying/{i}.jpg": LYING for i in range(200)}  # for several threads
    bad = dict(zip(names, (damaged_header(LYING), STANDING[:200], b"")))
    folder = image_folder({**healthy, **bad})
    without = image_folder(healthy)
    for name in names:
        os.remove(os.path.join(without, name))
    oracle = Run(JOB + ["--data", without, "--workers", "1", "--threads", "1"]).finish()
    expect(oracle["images_left_out"] == {"count": 0, "names": []}, f"{oracle['images_left_out']}")
    subprocess.run(["tar", "-cf", f"{folder}/set.tar", "-C", folder, "train", "test"], check=True)
    all_cores = os.sched_getaffinity(0)
    for data, workers, cores in ((folder, 3, all_cores), (folder, 1, {min(all_cores)}),
                                 (f"{folder}/set.tar", 2, all_cores)):
        os.sched_setaffinity(0, cores)  # the job reads the headers with one thread per core
        run = Run(JOB + ["--data", data, "--workers", str(workers), "--threads", "1",
                         "--skip-corrupt", "--cache-dir", os.path.join(folder, f"cache{workers}")])
        summary = run.finish()
        os.sched_setaffinity(0, all_cores)
        expect(summary["final_digest"] == oracle["final_digest"],
               f"{data}, {workers} workers: other bits than without the bad images")
        expected = {"count": 3, "names": names}
        expect(summary["images_left_out"] == expected, f"{summary['images_left_out']}")
        events = [e for e in run.lines("events.jsonl") if e["kind"] == "images_left_out"]
        expect([e["images"] for e in events] == [expected], f"events: {events}")
        words = "3 unusable images are left out: " + ", ".join(names)
        expect(run.output().count(words) == 2, f"not in warning and summary\n{run.output()}")
        logs = run.logs(tail=1000)
        expect(logs.count(words) == 2 + workers, f"not in every worker's log\n{logs}")
    shutil.rmtree(folder)
    shutil.rmtree(without)


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({
        "same_bits": same_bits, "bad_headers": bad_headers, "bad_bodies": bad_bodies,
        "left_out": left_out}))
