"""Run by Python at the start of child processes; then runs the user's own ``sitecustomize``, if there is one.

Note [Traces removed in a child]: all traces of backprobe's start are removed from a child's environment, path and
modules before any of its own code runs. If there is no other ``sitecustomize``, the import below raises, as ``site``
expects.
"""

import sys

import backprobe_following  # type: ignore[import-not-found]

for _name in ("sitecustomize", "backprobe_following", "backprobe_torch_import"):
    del sys.modules[_name]
backprobe_following.arrive()

import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
