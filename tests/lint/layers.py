"""Checks that docs/layers.txt allows every #include and every linked library between folders of the
repository, that it has no cycle, and that it names no folder of which nothing is included. The
libraries of the engine's folders must link a library of each folder that they may include."""

import re

from sources import Layers, cpp_files, finish, includes, root_argument


def edge_problems(root):
    layers = Layers(root)
    tops = layers.top_folders()
    used = set()
    for path, text in cpp_files(root):
        source = layers.folder_of(path)
        for line, quote, target_path in includes(text):
            where = f"{path}:{line}: {target_path}"
            if target_path.split("/")[0] not in tops:
                if quote == '"':
                    yield f"{where} is not a path from the root of the repository"
                continue
            target = layers.folder_of(target_path)
            used.add((source, target))
            if not (root / target_path).is_file() and quote == '"':
                yield f"{where} does not exist"
            elif source is None or target is None:
                yield f"{where}: one of the two folders is not in docs/layers.txt"
            elif not layers.may_include(source, target):
                yield f"{where}: {source} may not include {target}"
    for folder, targets in layers.allowed.items():
        for target in targets:
            if target != "*" and (folder, target) not in used:
                yield f"docs/layers.txt: {folder} includes nothing of {target}"


def cycle_problems(root):
    layers = Layers(root)
    done = set()

    def visit(folder, trail):
        if folder in trail:
            yield f"docs/layers.txt: cycle {' -> '.join(trail + [folder])}"
        elif folder not in done and folder in layers.allowed:
            for target in layers.allowed[folder]:
                yield from visit(target, trail + [folder])
            done.add(folder)

    for folder, targets in layers.allowed.items():
        for target in targets:
            if target != "*" and target not in layers.allowed:
                yield f"docs/layers.txt: {folder} names {target}, which is not in the table"
        yield from visit(folder, [])


def libraries(root, layers):
    """The repository's libraries: (file, name, folder, names of the libraries that it links)."""
    for top in layers.top_folders():
        for path in sorted((root / top).rglob("CMakeLists.txt")):
            text = re.sub(r"#.*", "", path.read_text())
            for words in re.findall(r"\bmayfly_library\(([^)]*)\)", text):
                name, *words = words.split()
                sources = [word for word in words if re.fullmatch(r"[\w/]+\.cpp", word)]
                source = path.parent / (sources[0] if sources else "headers_alone")
                folder = layers.folder_of(source.relative_to(root).as_posix())
                linked = [word for word in words if word.startswith("mayfly_")]
                yield path.relative_to(root), "mayfly_" + name, folder, linked


def link_problems(root):
    layers = Layers(root)
    found = list(libraries(root, layers))
    folders = {name: folder for _, name, folder, _ in found}
    for path, name, folder, linked in found:
        targets = {folders[target] for target in linked if target in folders}
        for target in sorted(targets - {None}):
            if folder is not None and not layers.may_include(folder, target):
                yield f"{path}: {name} links a library of {target}, which {folder} may not include"
        if folder is not None and folder.startswith("engine/"):
            for target in sorted(set(layers.allowed[folder]) - targets):
                yield f"{path}: {name} links no library of {target}, which docs/layers.txt names"


def problems(root):
    return list(cycle_problems(root)) + list(edge_problems(root)) + list(link_problems(root))


if __name__ == "__main__":
    finish(problems(root_argument()))
