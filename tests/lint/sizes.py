"""Checks the lengths of functions and files. Only those that docs/ratchet.txt lists may exceed the
limits, and the list may only shrink.

`python3 tests/lint/sizes.py . --list` prints lines for docs/ratchet.txt.
"""

import re
import sys

from sources import code_only, cpp_files, finish, root_argument

FUNCTION_LINES_MAX = 70
FILE_LINES_LISTED = 500
FILE_LINES_MAX = 800

_CONTAINER = re.compile(r"^\s*(template\s*<|(inline\s+)?namespace\b|class\b|struct\b|union\b|enum\b"
                        r"|extern\b)")
_TEMPLATE_TYPE = re.compile(r"\b(class|struct|union)\s+(\[\[\w+\]\]\s*)?"
                            r"\w[\w:<>, ]*(\s*:[^:].*)?$")
_NAME = re.compile(r"([\w:~]+|operator\s*\S+)\s*\(")


def is_container(header):
    """True for namespaces and types, which contain functions and are none."""
    if not _CONTAINER.match(header):
        return False
    if header.lstrip().startswith("template"):
        return _TEMPLATE_TYPE.search(header) is not None
    return True


def name_of(header):
    test = re.search(r"\bTEST(?:_F|_P)?\((\w+),\s*(\w+)\)", header)
    if test:
        return f"{test.group(1)}.{test.group(2)}"
    name = _NAME.search(header)
    return name.group(1) if name else "?"


def functions(text):
    """(name, first line, number of lines) of every function that is not within another one."""
    code = code_only(text)
    code = re.sub(r"^\s*#(.*\\\n)*.*$", lambda m: "\n" * m.group(0).count("\n"), code, flags=re.M)
    stack = []  # per open brace: None for a container, else (name, first line)
    header_start = 0
    for position, char in enumerate(code):
        inside_body = any(entry is not None for entry in stack)
        if char == "{":
            header = code[header_start:position].rstrip()
            if inside_body or is_container(header):
                stack.append(("", 0) if inside_body else None)
            else:
                blank = len(header) - len(header.lstrip())
                first = code.count("\n", 0, header_start + blank) + 1
                stack.append((name_of(header), first))
            header_start = position + 1
        elif char == "}" and stack:
            entry = stack.pop()
            if entry and entry[1]:
                yield entry[0], entry[1], code.count("\n", 0, position) + 2 - entry[1]
            header_start = position + 1
        elif char == ";":
            header_start = position + 1


def measure(root):
    """(kind, place, lines) of every file and function that exceeds its limit."""
    for path, text in cpp_files(root):
        lines = text.count("\n")
        if lines > FILE_LINES_LISTED:
            yield "file", path, lines
        for name, _, length in functions(text):
            if length > FUNCTION_LINES_MAX:
                yield "function", f"{path}:{name}", length


def ratchet(root):
    """{(kind, place): lines} of docs/ratchet.txt; each line is `kind place lines reason`."""
    listed = {}
    for line in (root / "docs/ratchet.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            kind, place, lines, _ = line.split(None, 3)
            listed[kind, place] = int(lines)
    return listed


def problems(root):
    listed = ratchet(root)
    found = []
    for kind, place, lines in measure(root):
        allowed = listed.pop((kind, place), 0)
        if kind == "file" and lines > FILE_LINES_MAX:
            found.append(f"{place}: {lines} lines; a file has at most {FILE_LINES_MAX}")
        elif lines > allowed:
            limit = allowed or (FILE_LINES_LISTED if kind == "file" else FUNCTION_LINES_MAX)
            found.append(f"{place}: a {kind} of {lines} lines, allowed are {limit}: split it"
                         " (or give a reason in docs/ratchet.txt)")
    for kind, place in listed:
        found.append(f"docs/ratchet.txt: {kind} {place} keeps the limit now; remove its line")
    return found


if __name__ == "__main__":
    if "--list" in sys.argv:
        for entry in measure(root_argument()):
            print(*entry)
    else:
        finish(problems(root_argument()))
