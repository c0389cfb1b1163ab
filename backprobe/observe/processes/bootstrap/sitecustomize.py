"""Run by Python at its start in processes that a watched one starts; then the user's own module of this name, if any.

Note [As without us]: what got a child here is gone from its variables, its path and its modules before anything of its
own runs. That there is no other ``sitecustomize`` is what ``site`` expects to be told by the error.
"""

import sys

import backprobe_following  # type: ignore[import-not-found]

for _name in ("sitecustomize", "backprobe_following", "backprobe_torch_import"):
    del sys.modules[_name]
backprobe_following.arrive()

import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
