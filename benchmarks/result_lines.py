"""How benchmark scripts summarise their measurements, and where they write them."""
import argparse
import json
from pathlib import Path


def argument_parser(description):
    """A parser of the arguments that benchmark scripts have in common."""
    made = argparse.ArgumentParser(description=description,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--binary",
                      default=str(Path(__file__).resolve().parent.parent / "build/release/mayfly"))
    made.add_argument("--output", help="a file to add the lines to, which are printed, too")
    return made


def percentile(values, share):
    """The value below which this share of the others lies; for a median of two in the middle, the
    larger one."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


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
