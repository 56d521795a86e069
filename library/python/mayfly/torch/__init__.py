"""Elastic training of PyTorch modules: see `Job`; what a job has kept: see `load`."""

from .checkpoint import load
from .job import Job

__all__ = ["Job", "load"]
