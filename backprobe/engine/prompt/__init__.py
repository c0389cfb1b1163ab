"""The prompt at a stop, in the manner of pdb.

============== ================================================================================================
``loop.py``    ``Prompt``: asks at each stop, reads commands and runs them; what one raises stays in it
``command.py`` the register: one function a command, with its line of ``help``
``reading.py`` where lines come from
``names.py``   what Python at the prompt can use
``going.py``, ``looking.py``, ``listing.py`` (lines of source), ``changing.py``, ``points.py``, ``python.py``,
               ``helping.py``: the commands
============== ================================================================================================
"""

from . import breakpoints, execution, helping, inspection, listing, mutation, python
from .loop import Prompt

__all__ = ["Prompt", "breakpoints", "execution", "helping", "inspection", "listing", "mutation", "python"]
