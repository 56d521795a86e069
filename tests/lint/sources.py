"""Functions that the checks share: the folders of docs/layers.txt, the sources, and source text
without comments."""

import pathlib
import re
import sys

CPP = (".hpp", ".cpp", ".cuh", ".cu")


class Layers:
    """docs/layers.txt: the level of each folder, and the folders that it may include."""

    def __init__(self, root):
        self.allowed = {}
        self.level = {}
        level = None
        for line in (root / "docs/layers.txt").read_text().splitlines():
            heading = re.match(r"#\s*(L\d)\b", line)
            if heading:
                level = heading.group(1)
            line = line.split("#")[0].strip()
            if line:
                folder, targets = (part.strip() for part in line.split("->"))
                self.allowed.setdefault(folder, []).extend(targets.split())
                self.level[folder] = level

    def folder_of(self, path):
        """The declared folder with the longest prefix of `path`, or None."""
        parts = path.split("/")[:-1]
        while parts:
            if "/".join(parts) in self.allowed:
                return "/".join(parts)
            parts.pop()
        return None

    def may_include(self, source, target):
        return source == target or "*" in self.allowed[source] or target in self.allowed[source]

    def top_folders(self):
        return sorted({folder.split("/")[0] for folder in self.allowed})


def cpp_files(root, suffixes=CPP):
    """The repository's C++ files as (relative path, text), in a fixed order."""
    for top in Layers(root).top_folders():
        for path in sorted((root / top).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path.relative_to(root).as_posix(), path.read_text()


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def code_only(text):
    """Blanks comments and the insides of literals; line breaks stay where they are."""

    def blank(match):
        token = match.group(0)
        if token[0] == "'" and match.start() > 0 and text[match.start() - 1].isalnum():
            return token  # a digit separator, not a character
        kept = '""' if token[0] in '"R' else " "
        return kept + "\n" * token.count("\n")

    return _TOKEN.sub(blank, text)


def includes(text):
    """(line number, '"' or '<', path) of every include."""
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(1), match.group(2)


def finish(problems):
    """Prints the problems and ends the check."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems" if problems else "clean")
    sys.exit(1 if problems else 0)


def root_argument():
    return pathlib.Path(sys.argv[1]).resolve()
