"""Where a benchmark script writes its results."""
import json


def writer(path):
    """A function that writes a line on standard output, and at the end of the file unless `path`
    is empty: what a run has measured stays if it is interrupted."""
    def write(line):
        text = json.dumps(line)
        print(text, flush=True)
        if path:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text + "\n")
    return write
