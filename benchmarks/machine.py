"""The facts about machine and build that every benchmark script records."""
import datetime
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def output_of(*command):
    """The output of a command; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def processor():
    with open("/proc/cpuinfo") as f:
        return next((line.split(":", 1)[1].strip() for line in f
                     if line.startswith("model name")), "unknown")


def facts(binary):
    return {"kind": "machine", "processor": processor(), "cores": os.cpu_count(),
            "commit": output_of("git", "rev-parse", "--short", "HEAD"),
            "uncommitted_changes":
                bool(output_of("git", "status", "--porcelain", "--untracked-files=no")),
            "mayfly": output_of(os.path.abspath(binary), "version"),
            "load_average_before": round(os.getloadavg()[0], 2),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
