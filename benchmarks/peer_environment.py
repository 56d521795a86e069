"""The environment in which a peer is measured."""
import os

# PyTorch's own advice: freed memory is kept.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TOP_PAD_": "268435456",
               "MALLOC_TRIM_THRESHOLD_": "99999999999"}


def clean_environment():
    """This process's environment without variables that would change a contestant's settings."""
    steering = ("MALLOC_", "OMP_", "GOMP_", "KMP_", "ATEN_", "ONEDNN_", "DNNL_", "MKL_", "MAYFLY_",
                "GLIBC_TUNABLES", "LD_PRELOAD")
    return {name: text for name, text in os.environ.items() if not name.startswith(steering)}
