"""Capture: the tensors and gradients of modules, by name."""

from __future__ import annotations

from .mapping import Activations as Activations
from .mapping import Gradients as Gradients
