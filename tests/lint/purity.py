"""Checks that pure folders (L1) use no clock, thread, file, socket or device, and that ports use no
types of third parties."""

import re

from sources import Layers, code_only, cpp_files, finish, includes, root_argument

BANNED_IN_PURE = [
    (r"<(thread|mutex|shared_mutex|condition_variable|future|atomic)>", "threads"),
    (r"\bstd::(jthread|thread|mutex|async|atomic)\b", "threads"),
    (r"\b(system_clock|steady_clock|high_resolution_clock|monotonic_now|thread_cpu_now|"
     r"wall_clock_seconds)\b",
     "clocks"),
    (r"\bsleep(_for|_until)?\s*\(", "sleeping"),
    (r"\b(s?rand|random_device|getenv)\s*\(|\bstd::random_device\b", "hidden inputs"),
    (r"\bunordered_", "containers without an order"),
    (r"<(fstream|filesystem|cstdio|iostream)>|\b[io]?fstream\b|\bfopen\s*\(", "files"),
    (r"<boost/asio|\bboost::asio|<(sys|netinet|arpa)/", "sockets and the operating system"),
    (r"<mpi\.h>|\bMPI_|<cuda|\bcuda[A-Z]|<gloo/|\bgloo::", "transports and devices"),
]
# Headers of base with functions that access files or other resources of the system.
IMPURE_BASE = ("base/file.hpp", "base/log.hpp", "base/unique_fd.hpp")

PORTS = ("collectives/group.hpp", "datasets/dataset.hpp", "datasets/loader.hpp",
         "nn/step_engine.hpp", "cloud_hooks/core/provider.hpp")


def purity_problems(root):
    layers = Layers(root)
    for path, text in cpp_files(root):
        if layers.level.get(layers.folder_of(path)) != "L1":
            continue
        for number, line in enumerate(code_only(text).splitlines(), 1):
            for pattern, what in BANNED_IN_PURE:
                if re.search(pattern, line):
                    yield f"{path}:{number}: {what} in a pure folder: {line.strip()}"
        for number, _, target in includes(text):
            if target in IMPURE_BASE:
                yield f"{path}:{number}: a pure folder does not use {target}"


def port_problems(root):
    """Ports and the headers of base may include only headers of the repository and the standard
    library. base/asio is excepted, because its purpose is to share code with Asio's types."""
    for path, text in cpp_files(root, (".hpp",)):
        is_of_base = path.startswith("base/") and not path.startswith("base/asio/")
        if path not in PORTS and not is_of_base:
            continue
        for number, quote, target in includes(text):
            if quote == "<" and not re.fullmatch(r"[a-z_0-9]+", target):
                yield f"{path}:{number}: a port includes the standard library only, not <{target}>"
        for number, line in enumerate(code_only(text).splitlines(), 1):
            if re.search(r"\b(boost|gloo|dnnl|hwy|fmt|spdlog)::|\bMPI_|\bnccl|\bcuda[A-Z]", line):
                yield f"{path}:{number}: a third-party type in a port: {line.strip()}"


def problems(root):
    return list(purity_problems(root)) + list(port_problems(root))


if __name__ == "__main__":
    finish(problems(root_argument()))
