"""Control of a running backward: stop inside, look, change, go on.

=============== ==============================================================================
``control.py``  ``Pilot`` decides where to stop; ``Control`` is its hooks on one backward call
``breaks.py``   breakpoints, and the text form of them
``called.py``   the graph of one call: nodes, names, modules, lines, what has run
``sight.py``    which module and line made a node, as far as the forward was watched
``stop.py``     what is there at a stop, and what can be changed
``rerun.py``    a node once more
``values.py``   gradients as numbers and words
``handle.py``   ``backprobe.debug``: the engine in a second thread, the caller in control
``attach.py``   ``backprobe.breakpoint_backward``: stops in the engine's own thread
``prompt.py``   the prompt, in the manner of pdb
``show.py``     text of what is there
=============== ==============================================================================
"""
