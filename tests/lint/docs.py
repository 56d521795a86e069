"""Checks that links, file names and flags in the documents exist, and the sources that comments
name."""

import re

from sources import CPP, Layers, finish, root_argument


def markdown_files(root):
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))


def link_problems(root, path, text):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
            yield f"{path.relative_to(root)}: the link to {target} leads nowhere"


def name_problems(root, path, text):
    """A backquoted path into a folder of the repository must exist; its suffix may be left out."""
    tops = Layers(root).top_folders() + ["docs", "scripts", "cmake", ".ci"]
    for name in re.findall(r"`([\w./-]+/[\w./-]*)`", text):
        if name.split("/")[0] not in tops:
            continue
        whole = root / name
        if not whole.exists() and not list(whole.parent.glob(whole.name + ".*")):
            yield f"{path.relative_to(root)}: `{name}` does not exist"


# Flags of other programs that the documents mention.
MPIRUN_FLAGS = {"allow-run-as-root", "bind-to", "continuous", "enable-recovery", "kill-on-bad-exit",
                "mca", "mpi", "oversubscribe"}
SLURMS_FLAGS = {"cpus-per-task", "exclusive", "gres", "mem", "no-kill", "ntasks-per-node"}


def flag_problems(root, path, text):
    """Flags of mayfly, in examples and prose, must be names of settings or options."""
    known = set()
    for folder in ("engine/config", "cli", "benchmarks", "tests/sim"):
        for source in (root / folder).rglob("*.cpp"):
            known |= set(re.findall(r'"([a-z][a-z0-9_-]*)"', source.read_text()))
    if not known:
        return
    ours = re.findall(r"`(--[a-z].*?)`", text)
    ours += [line.split("mayfly ", 1)[1] for line in text.replace("\\\n", " ").splitlines()
             if re.search(r"mayfly (train|worker|coordinator|eval|bench|simulate)\b", line)]
    for flag in sorted({flag for part in ours for flag in re.findall(r"--([a-z][a-z-]*)", part)}):
        if flag not in known | MPIRUN_FLAGS | SLURMS_FLAGS and flag.replace("-", "_") not in known:
            yield f"{path.relative_to(root)}: there is no flag --{flag}"


def comment_problems(root):
    """A source that a comment names must exist, in any folder; its folder may be left out."""
    sources = [path for top in Layers(root).top_folders()
               for path in sorted((root / top).rglob("*")) if path.suffix in CPP]
    names = {path.name for path in sources}
    for path in sources:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            comment = line.partition("//")[2]
            for name in re.findall(r"([\w-]+\.(?:hpp|cpp|cu))\b", comment):
                if name not in names:
                    yield f"{path.relative_to(root)}:{number}: there is no {name}"


def problems(root):
    found = list(comment_problems(root))
    for path in markdown_files(root):
        text = path.read_text()
        prose = re.sub(r"```.*?```", "", text, flags=re.S)
        found += link_problems(root, path, prose)
        found += name_problems(root, path, prose)
        found += flag_problems(root, path, text)
    return found


if __name__ == "__main__":
    finish(problems(root_argument()))
