"""The prompt at a stop, similar to pdb.

======================================== ==================================================================
``loop.py``                              ``Prompt``: reads commands at each stop and runs them; contains
                                         their errors
``command.py``                           the registry: one function a command, with its line of ``help``
``reading.py``                           sources of input lines
``names.py``                             names that Python code at the prompt can use
``execution.py``, ``inspection.py``,     the commands
``listing.py`` (source lines),
``mutation.py``, ``breakpoints.py``,
``python.py``, ``helping.py``
======================================== ==================================================================
"""

from . import breakpoints, execution, helping, inspection, listing, mutation, python
from .loop import Prompt

__all__ = ["Prompt", "breakpoints", "execution", "helping", "inspection", "listing", "mutation", "python"]
