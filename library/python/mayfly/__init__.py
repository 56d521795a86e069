"""Elastic data-parallel training: workers may vanish and join, and the result is the same.

`mayfly.torch.Job` trains PyTorch modules, `mayfly.ArrayJob` whatever computes gradients as NumPy
arrays. Programs are started by `mayfly run --workers 4 -- python3 train.py`; see docs/library.md.
"""

from ._abi import MayflyError, Refused
from ._arrays import ArrayJob
from ._core import Evaluation, Outcome

__all__ = ["ArrayJob", "Evaluation", "MayflyError", "Outcome", "Refused"]
