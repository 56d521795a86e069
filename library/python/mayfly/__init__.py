"""Elastic data-parallel training: workers may be lost and join, and the result is the same.

`mayfly.torch.Job` trains PyTorch modules, `mayfly.ArrayJob` any model whose gradients are NumPy
arrays. Programs are started by `mayfly run --workers 4 -- python3 train.py`; see docs/library.md.
"""
import sys

if sys.version_info < (3, 9):
    raise ImportError("mayfly needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2])

from ._abi import MayflyError, Refused  # noqa: E402
from ._arrays import ArrayJob  # noqa: E402
from ._core import Evaluation, Outcome, slot  # noqa: E402

__all__ = ["ArrayJob", "Evaluation", "MayflyError", "Outcome", "Refused", "slot"]
