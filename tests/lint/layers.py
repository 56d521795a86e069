"""Every #include edge between our folders is allowed by docs/layers.txt, which has no cycle."""

from sources import Layers, cpp_files, finish, includes, root_argument


def edge_problems(root):
    layers = Layers(root)
    tops = layers.top_folders()
    for path, text in cpp_files(root):
        source = layers.folder_of(path)
        for line, quote, target_path in includes(text):
            where = f"{path}:{line}: {target_path}"
            if target_path.split("/")[0] not in tops:
                if quote == '"':
                    yield f"{where} is not a path from the root of the repository"
                continue
            target = layers.folder_of(target_path)
            if not (root / target_path).is_file() and quote == '"':
                yield f"{where} does not exist"
            elif source is None or target is None:
                yield f"{where}: one of the two folders is not in docs/layers.txt"
            elif not layers.may_include(source, target):
                yield f"{where}: {source} may not include {target}"


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


def problems(root):
    return list(cycle_problems(root)) + list(edge_problems(root))


if __name__ == "__main__":
    finish(problems(root_argument()))
