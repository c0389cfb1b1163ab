"""Capture: the tensors and gradients of modules, by name."""

from __future__ import annotations

from .activations import Activations as Activations
from .activations import Gradients as Gradients
