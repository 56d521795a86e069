"""What jobs read from storage."""
import glob
import os
import sys


def read_bytes(process):
    """Of this process so far, not from the page cache; 0 if it is gone."""
    try:
        with open(f"/proc/{process}/io") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))
    except (OSError, StopIteration):
        return 0


class Reads:
    """The bytes of images that are read from storage, by the times of the last access."""

    def __init__(self, data):
        self.sizes = {path: os.path.getsize(path)
                      for path in glob.glob(os.path.join(data, "train", "*", "*.jpg"))}
        self.bytes = sum(self.sizes.values())
        self.take()
        with open(next(iter(self.sizes)), "rb") as file:
            file.read(1)
        if self.take() == 0:
            sys.exit("this file system does not keep times of access")

    def take(self):
        """Since the last call, which should not be long ago: a second read is not seen."""
        read = 0
        for path, size in self.sizes.items():
            found = os.stat(path)
            if found.st_atime_ns != 0:
                read += size
                os.utime(path, ns=(0, found.st_mtime_ns))
        return read
