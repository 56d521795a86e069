"""Elastic training of PyTorch modules (`Job`), and reading the checkpoints of a job (`load`)."""

from .checkpoint import load
from .job import Job

__all__ = ["Job", "load"]
