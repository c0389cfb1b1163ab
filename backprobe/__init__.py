"""See what happens inside ``loss.backward()``, and what went wrong: which node, module, source line and tensor."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
