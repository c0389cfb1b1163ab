"""The entry point of ``python -m backprobe`` and of the command ``backprobe``.

Note [The working directory is not imported from]: ``python -m`` puts the working directory in front of ``sys.path``. A
    user who reads another person's run may do so in that person's folder. A ``rich.py`` there would be executed, and a
    ``*.dist-info`` would name plugins. Commands that run a script rebuild ``sys.path`` as the script expects it
    (``observe/program.py``). So until ``sys.path`` is right, only built-in modules are imported, both here and in
    ``backprobe/__init__.py``.
"""

import os  # the interpreter has imported it at its start
import sys


def _leave_working_directory() -> None:
    """Remove the working directory from ``sys.path``, unless ``PYTHONPATH`` names it by an absolute path."""
    here = os.path.realpath(os.getcwd())
    named = {os.path.realpath(one) for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(one)}
    if here not in named:
        sys.path[:] = [one for one in sys.path if os.path.realpath(one or ".") != here]


if __name__ == "__main__":
    if not sys.argv[1:] or sys.argv[1] not in ("run", "debug", "bench", "demo"):
        _leave_working_directory()
    elif not getattr(sys.flags, "safe_path", sys.flags.isolated):
        del sys.path[0]

_path = sys.path[:]
_standard = os.path.dirname(os.__file__)
# A module in PYTHONPATH with the name of one in the standard library is the script's: see observe/shadows.py.
sys.path.sort(key=lambda one: not str(one).startswith(_standard))
try:
    from .commands import main
finally:
    sys.path[:] = _path

if __name__ == "__main__":
    sys.exit(main())
