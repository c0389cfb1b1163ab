"""The autograd graph as plain data: read it, ask it, draw it. Nothing in here imports torch.

The package has the name of its main function, and importing any part of it puts the package where ``backprobe.graph``
looks. So the package itself can be called: it does what ``backprobe.observe.snapshot.graph`` does.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from ..observe.snapshot import graph

        return graph(*args, **kwargs)

    @property
    def recording(self) -> Any:
        """``backprobe.observe.recording.recording``: note what ran, for module calls and lines in a graph."""
        from ..observe.recording import recording

        return recording


#: What ``backprobe.graph`` is, whether a part of it has been imported before or not.
package = sys.modules[__name__]
package.__class__ = _CallablePackage
