"""Goal: `mayfly plan predict` answers from the measurements in a folder, also if some are missing.
Method: copies of the invented calibration (tests/unit/planner/invented.hpp) that lack files, have
other numbers or are damaged; the predictions must change accordingly.
"""
import csv
import json
import pathlib
import shutil
import subprocess
import tempfile

import mayfly_run
from mayfly_run import expect

INVENTED = pathlib.Path(__file__).parents[2] / "unit/planner/invented"
STEP = {"quantity": "step_time", "gpu": "A1", "family": "plain", "gflops": 3}


def predict(folder, *queries):
    """Runs `mayfly plan predict`; returns the exit code, standard error, and the answers."""
    done = subprocess.run([mayfly_run.BINARY, "plan", "predict", "--calibration", str(folder)],
                          input="".join(json.dumps(query) + "\n" for query in queries),
                          capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, [json.loads(line) for line in done.stdout.splitlines()]


def scaled(target, file, column, gpu, factor):
    """A copy of the invented folder in which a column of one machine type is multiplied."""
    shutil.copytree(INVENTED, target)
    with open(INVENTED / file, newline="", encoding="utf-8") as text:
        rows = list(csv.DictReader(text))
    for row in rows:
        if row["gpu"] == gpu:
            row[column] = str(factor * float(row[column]))
    with open(target / file, "w", newline="", encoding="utf-8") as text:
        writer = csv.DictWriter(text, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def follows(folder):
    code, complaints, before = predict(INVENTED, STEP, {"quantity": "step_time"},
                                       {**STEP, "gpu": "B2"})
    expect((code, complaints) == (0, ""), complaints)
    expect(abs(before[0]["median"] - 0.35) < 0.01, f"not near the truth: {before[0]}")
    expect(before[1] == {"error": "gpu is missing"}, before[1])
    scaled(folder / "slower", "step_time.csv", "step_s", "A1", 1.25)
    after = predict(folder / "slower", STEP, {**STEP, "gpu": "B2"})[2]
    expect(abs(after[0]["median"] / before[0]["median"] - 1.25) < 0.001, "A1 does not follow")
    expect(abs(after[1]["median"] / before[2]["median"] - 1) < 0.001, "B2 follows, too")


def subsets(folder):
    query = {"quantity": "cluster_speed", "cluster": "2xA1", "model": "net-20"}
    for name in sorted(path.name for path in INVENTED.glob("*.csv")):
        only = folder / name
        only.mkdir()
        shutil.copy(INVENTED / name, only)
        code, complaints, answers = predict(only, query)
        expect((code, complaints, len(answers)) == (0, "", 1), f"{name}: {complaints}")
        expect(("median" in answers[0]) == (name == "step_time.csv"), f"{name}: {answers[0]}")


def damaged(folder):
    shutil.copytree(INVENTED, folder / "damaged")
    prices = folder / "damaged/prices.csv"
    prices.write_text("resource,market,usd_per_second\na,spot,cheap\n")
    code, complaints, answers = predict(folder / "damaged", STEP)
    expect((code, answers) == (2, []), f"exit code {code}, {answers}")
    expect(complaints == f"mayfly: {prices}:2: usd_per_second is 'cheap', not a number of at "
                         "least 0\n", complaints)
    code, complaints, _ = predict(folder / "missing", STEP)
    expect(code == 2 and complaints.count("\n") == 1, complaints)


def in_a_folder(test):
    def run():
        with tempfile.TemporaryDirectory(prefix="mayfly-test-") as folder:
            test(pathlib.Path(folder))
    return run


if __name__ == "__main__":
    raise SystemExit(mayfly_run.main({test.__name__: in_a_folder(test)
                                      for test in (follows, subsets, damaged)}))
