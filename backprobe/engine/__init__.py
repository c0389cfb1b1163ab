"""Control of a running backward: stop inside, look, change, go on.

================ ==============================================================================
``control.py``   ``Pilot`` decides where to stop; ``Control`` is its hooks on one backward call
``going.py``     how to go on from a stop
``breaks.py``    breakpoints, and the text form of them
``called.py``    the graph of one call: nodes, names, modules, lines, what has run
``forward.py``     which module and line made a node, as far as the forward was watched
``stop.py``      what is there at a stop, and what can be changed
``past.py``      going back in a running backward (B1 to B3)
``rerun.py``     a node once more, by a call; in float64 by ``double.py`` (W1 to W3)
``apart.py``     whether gradients agree bit for bit, and how far apart they are
``single.py``    a node once more, as the engine runs it, hooks and all (S1 to S3)
``steering.py``  what a ``Debugger`` and a ``Replay`` have in common
``replay.py``    ``backprobe.replay`` (P1 to P3); ``start.py`` what it begins with, ``machine.py`` the engine's order
                 and sums (M1 to M3), ``runner.py`` one node of it, ``nested.py`` backwards inside nodes, ``aside.py``
                 random state and ``.grad`` of activations, ``results.py`` what came out, ``parity.py`` held against the
                 engine and float64
``rules.py``     rules that take the place of nodes
``values.py``    gradients as numbers and words
``handle.py``    ``backprobe.debug``: the engine in a second thread, the caller in control
``attach.py``    ``backprobe.breakpoint_backward``: stops in the engine's own thread
``prompt.py``    the prompt, in the manner of pdb
``show.py``      text of what is there
================ ==============================================================================
"""
