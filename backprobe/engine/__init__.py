"""Control of a running backward: stop inside, look, change, go on.

===================== =========================================================================
``backward_graph.py`` the graph of one backward call: nodes, names, modules, lines, what has run
``provenance.py``     which module and line made a node, as far as the forward was watched
``breakpoints.py``    breakpoints, and the nodes that they name; ``options.py`` what they are made from: keyword
                      arguments or text; ``conditions.py`` what is to hold besides, ``sieve.py`` what of it
                      a cheap look rules out
``why.py``            what is to be said where something went wrong
``stop.py``           what is there at a stop, and what can be changed
``resume.py``         how to go on from a stop
``pilot.py``          ``Pilot`` decides where to stop, over all backward calls
``control.py``        ``run`` makes one call with ``Control`` on it: the hooks, which ask the pilot
``rewind.py``         going back in a running backward
``rerun.py``          the node of a stop once more
``single.py``         the one way to run a node by itself; ``calling.py`` calls it, ``double.py`` in float64
``difference.py``     whether gradients agree bit for bit, and how far they are from each other
``values.py``         gradients as numbers and words
``steering.py``       what a ``Debugger`` and a ``Replay`` have in common
``handle.py``         ``backprobe.debug``: the engine in a second thread, the caller in control
``attach.py``         ``backprobe.breakpoint_backward``: stops in the engine's own thread
``prompt/``           the prompt, in the manner of pdb; ``show.py`` text of what is there
``replay.py``         ``backprobe.replay``; ``start.py`` what it begins with, ``graph_task.py`` which node is next and
                      what has come for it, ``runner.py`` one node, ``rules.py`` what can take its place, ``nested.py``
                      backwards inside nodes, ``results.py`` what came out, ``parity.py`` held against the engine
                      and float64
===================== =========================================================================
"""
