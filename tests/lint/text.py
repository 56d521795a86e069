"""Checks the text of all files: at most 100 columns, no tabs, no trailing blanks, marks for later
only with the number of an issue, and no C++ comment that is a fragment beginning with "Of"."""

import re

from sources import Layers, finish, root_argument

SUFFIXES = {".hpp", ".cpp", ".cuh", ".cu", ".py", ".cmake", ".txt", ".awk", ".sh"}
COLUMNS_MAX = 100
FRAGMENT = re.compile(r"//[/<!]* *Of\b")  # "Of this view": the noun before it is missing
LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME)\b(?!\(#\d+\))")  # split, so that it does not match here


def files(root):
    for top in Layers(root).top_folders() + ["cmake", "scripts", ".ci", "docs"]:
        for path in sorted((root / top).rglob("*")):
            scripted = top in ("scripts", ".ci")
            if path.is_file() and (path.suffix in SUFFIXES or scripted):
                if "__pycache__" not in path.parts and "fixtures" not in path.parts:
                    yield path.relative_to(root).as_posix(), path.read_text()


def line_problems(line):
    if len(line) > COLUMNS_MAX:
        yield f"{len(line)} columns, at most {COLUMNS_MAX}"
    if "\t" in line:
        yield "a tab"
    if line != line.rstrip():
        yield "blanks at the end of the line"
    if FRAGMENT.search(line):
        yield 'a comment that begins with "Of"; name what is "of" that'
    if LATER.search(line):
        yield "a mark for later without its issue, as in TO" "DO(#12)"


def problems(root):
    found = []
    for path, text in files(root):
        for number, line in enumerate(text.split("\n"), 1):
            found += [f"{path}:{number}: {problem}" for problem in line_problems(line)]
        if text and not text.endswith("\n"):
            found.append(f"{path}: no line break at the end")
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
