"""A control group (version 1) that a benchmark makes for its processes; needs root."""
import os
import sys

ROOT = "/sys/fs/cgroup"


def is_available():
    return os.geteuid() == 0 and all(os.path.isdir(os.path.join(ROOT, kind))
                                     for kind in ("memory", "blkio", "cpu"))


class ControlGroup:
    """`kind` is the hierarchy: memory, blkio or cpu."""

    def __init__(self, kind, name):
        self.folder = os.path.join(ROOT, kind, name)
        os.makedirs(self.folder, exist_ok=True)

    def write(self, name, value):
        with open(os.path.join(self.folder, name), "w") as file:
            file.write(str(value))

    def read(self, name):
        with open(os.path.join(self.folder, name)) as file:
            return file.read()

    def add(self, process):
        """Processes that it starts from now on are in the group, too."""
        self.write("cgroup.procs", process)

    def processes(self):
        return [int(line) for line in self.read("cgroup.procs").split()]

    def needed(self):
        """Bytes of memory without page cache; only in the hierarchy memory."""
        usage = int(self.read("memory.usage_in_bytes"))
        return usage - next(int(line.split()[1])
                            for line in self.read("memory.stat").splitlines()
                            if line.startswith("total_cache "))

    def remove(self):
        try:
            os.rmdir(self.folder)
        except OSError as error:
            print(f"{self.folder}: {error}", file=sys.stderr)
