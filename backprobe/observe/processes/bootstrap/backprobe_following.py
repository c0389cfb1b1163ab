"""Makes child processes of this process run the ``sitecustomize`` beside this file.

Imports no other part of backprobe, and no torch.

Note [Reaching a child]: two environment variables reach a child: ``PYTHONPATH`` has this folder first, and
``BACKPROBE_JOB`` holds its configuration. They are in the environment of the process, not in ``os.environ``, which a
script may read and pass on. If the script sets a child's environment itself (``subprocess`` with ``env``), the
variables are added when the child is started. A child removes them (Note [Traces removed in a child]) and observes
itself once it has imported torch; a child that does not import torch only pays for a check of the names that it
imports.
"""

import os
import sys

if __package__:
    from .backprobe_torch_import import TorchImport
else:  # in a child, whose path has only this folder
    from backprobe_torch_import import TorchImport  # type: ignore[import-not-found, no-redef]

#: Variables for the child's configuration, and for the rank of its parent, which the child may have inherited.
JOB_VARIABLE, PARENT_VARIABLE = "BACKPROBE_JOB", "BACKPROBE_PARENT_RANK"
FOLDER = os.path.dirname(os.path.abspath(__file__))
#: Position of the environment among the arguments of ``fork_exec``.
_ENVIRONMENT_POSITION = 5


class ChildEnvironment:
    """Passes the configuration to child processes, between ``start`` and ``stop``.

    :param config: the configuration, as text.
    :param refused: called with the PID of a child Python that ignores its environment.
    """

    def __init__(self, config, refused=None):
        """Take the environment variables for children; ``start`` makes new processes get them."""
        self.config, self.refused = config, refused
        self._undo = []

    def start(self):
        """Begin to pass the configuration: set the variables, and replace the functions that start processes.

        Return whether that is possible on this system.
        """
        if os.name != "posix" or os.pathsep in FOLDER:
            return False
        for name, value in self._with(os.environ.get("PYTHONPATH")):
            os.putenv(name, value)
        import _posixsubprocess

        self._replace(_posixsubprocess, "fork_exec")
        subprocess = sys.modules.get("subprocess")
        if hasattr(subprocess, "_fork_exec"):  # subprocess's own name for it, from Python 3.11 on
            self._replace(subprocess, "_fork_exec")
        return True

    def stop(self):
        """Restore the functions and the environment variables, so that later children get no configuration."""
        while self._undo:
            self._undo.pop()()
        for name in (JOB_VARIABLE, PARENT_VARIABLE, "PYTHONPATH"):
            if name in os.environ:
                os.putenv(name, os.environ[name])
            else:
                os.unsetenv(name)

    def _replace(self, module, name):
        """Replace the function `name` of `module`, which starts a process, by one that adds our variables to its
        environment.
        """
        real = getattr(module, name)

        def fork_exec(*call_args):
            """Start a process with our variables; without them, if it is a Python that would not remove them, which is
            reported.
            """
            refuses = _takes_nothing(call_args[0])
            if len(call_args) > _ENVIRONMENT_POSITION:
                env = call_args[_ENVIRONMENT_POSITION]
                if refuses:  # it would not remove our variables
                    env = [name + b"=" + value for name, value in os.environb.items()] if env is None else env
                elif isinstance(env, list):
                    env = self._of(env)
                call_args = (*call_args[:_ENVIRONMENT_POSITION], env, *call_args[_ENVIRONMENT_POSITION + 1 :])
            pid = real(*call_args)
            if refuses and self.refused is not None:
                self.refused(pid)
            return pid

        def undo():
            """Restore the function, unless something else replaced it."""
            if getattr(module, name, None) is fork_exec:
                setattr(module, name, real)

        setattr(module, name, fork_exec)
        self._undo.append(undo)

    def _with(self, path):
        """Return the names and values of our variables, with our folder before `path` (or alone if it is ``None``)."""
        path = FOLDER if path is None else FOLDER + os.pathsep + path
        return [("PYTHONPATH", path), (JOB_VARIABLE, self.config), (PARENT_VARIABLE, os.environ.get("RANK", ""))]

    def _of(self, env):
        """Return `env`, a list of ``NAME=value``, with the variables for a child."""
        kept, places, path = [], {}, None  # type: ignore[var-annotated]
        for one in env:
            name, _, value = os.fsdecode(one).partition("=")
            if name in (JOB_VARIABLE, PARENT_VARIABLE):
                continue
            if name == "PYTHONPATH":
                path, places[name] = value, len(kept)
            kept.append(one)
        for name, value in self._with(path):
            text = os.fsencode(name + "=" + value)
            if name in places:
                kept[places[name]] = text
            else:
                kept.append(text)
        return kept


def _takes_nothing(args):
    """Return whether a command is a Python with options that ignore the environment or ``site``."""
    args = [os.fsdecode(one) for one in args]
    if not args or not os.path.basename(args[0]).startswith("python"):
        return False
    rest = iter(args[1:])
    for one in rest:
        if not one.startswith("-") or one.startswith("--") or one in ("-", "-c", "-m"):
            return False
        if one in ("-W", "-X"):
            next(rest, None)
        elif one[1] not in "WX" and set("IES") & set(one.partition("c")[0].partition("m")[0]):
            return True
    return False


def arrive():
    """Begin in a child, before any of its own code runs: remove our traces, and wait for its import of torch."""
    config, parent = os.environ.pop(JOB_VARIABLE, None), os.environ.pop(PARENT_VARIABLE, "")
    if "PYTHONPATH" in os.environ:
        rest = [one for one in os.environ["PYTHONPATH"].split(os.pathsep) if one != FOLDER]
        if rest:
            os.environ["PYTHONPATH"] = os.pathsep.join(rest)
        else:
            del os.environ["PYTHONPATH"]
    sys.path[:] = [one for one in sys.path if one != FOLDER]
    sys.path_importer_cache.pop(FOLDER, None)
    if config is None:
        return
    following = ChildEnvironment(config)
    following.start()
    TorchImport(lambda: _watch(config, parent, following)).start()


def _watch(config, parent, following):
    """Begin observing this child, which has imported torch; a failure is noted in the run's folder and not raised.

    `config` is JSON, `parent` the rank of the parent.
    """
    import json
    from time import perf_counter

    config, began = json.loads(config), perf_counter()
    try:
        sys.path.insert(0, config["root"])
        try:
            from backprobe.observe.processes.attach import arrived
        finally:
            sys.path.remove(config["root"])
        arrived(config, parent, following, began)
    except Exception:  # an internal error must not disturb the child
        unwatched(config["folder"], os.getpid())


def unwatched(folder, pid):
    """Note in a run's folder that one of its processes could not be observed."""
    try:
        parts = os.path.join(folder, "parts")
        if not os.path.isdir(parts):
            os.mkdir(parts)
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        os.close(os.open(os.path.join(parts, "unwatched-%d" % pid), flags, 0o666))
    except OSError:
        pass
