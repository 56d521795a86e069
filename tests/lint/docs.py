"""The documents are true to the tree: links and file names in them lead somewhere."""

import re

from sources import Layers, finish, root_argument


def markdown_files(root):
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))


def link_problems(root, path, text):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
            yield f"{path.relative_to(root)}: the link to {target} leads nowhere"


def name_problems(root, path, text):
    """A backquoted path into one of our folders must exist; its suffix may be left out."""
    tops = Layers(root).top_folders() + ["docs", "scripts", "cmake", ".ci"]
    for name in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        if name.split("/")[0] not in tops:
            continue
        whole = root / name
        if not whole.exists() and not list(whole.parent.glob(whole.name + ".*")):
            yield f"{path.relative_to(root)}: `{name}` does not exist"


def problems(root):
    found = []
    for path in markdown_files(root):
        text = path.read_text()
        prose = re.sub(r"```.*?```", "", text, flags=re.S)
        found += link_problems(root, path, prose)
        found += name_problems(root, path, prose)
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
