"""Reading a run directory's records while the job writes them, at a negligible cost."""
import json
import os

TAIL_BYTES = 4096  # some ten records


def last_records(run_dir, name):
    """The file's last whole lines, oldest first; none if there is no such file yet."""
    try:
        with open(os.path.join(run_dir, name), "rb") as f:
            size = os.fstat(f.fileno()).st_size
            f.seek(max(0, size - TAIL_BYTES))
            lines = f.read().splitlines(keepends=True)
    except OSError:
        return []
    whole = lines if size <= TAIL_BYTES else lines[1:]
    return [json.loads(line) for line in whole if line.endswith(b"\n")]


def last_step(run_dir):
    """The last step on record, 0 before the first."""
    return max((m.get("step", 0) for m in last_records(run_dir, "metrics.jsonl")), default=0)
