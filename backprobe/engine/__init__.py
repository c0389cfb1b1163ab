"""Control of a running backward: stop inside it, inspect it, change it, resume.

========================== ====================================================================
``backward_graph.py``      the graph of one backward call: nodes, names, modules, lines, progress
``provenance.py``          the module and line that created a node, if the forward was watched
``breakpoints.py``         breakpoints, and the nodes that they match
``options.py``             creates breakpoints from keyword arguments or text
``conditions.py``          conditions of breakpoints
``condition_prefilter.py`` a cheap check that excludes most conditions
``why.py``                 explains errors and non-finite gradients
``stop.py``                a stop: its state, and what can be changed
``resume.py``              how to resume from a stop
``stop_controller.py``     ``StopController`` decides where to stop, over all backward calls
``control.py``             ``run`` makes one call with ``Control``, the hooks that ask the controller
``rewind.py``              goes back in a running backward
``rerun.py``               runs the node of a stop again
``single.py``              the only way to run a node by itself
``calling.py``             calls a node from Python; ``double.py`` in float64
``difference.py``          bitwise equality and distance of gradients
``values.py``              gradients as numbers and words
``steering.py``            the commands that ``Debugger`` and ``Replay`` share
``handle.py``              ``backprobe.debug``: the engine in a second thread
``attach.py``              ``backprobe.breakpoint_backward``: stops in the engine's own thread
``prompt/``                the pdb-like prompt; ``show.py`` formats a stop
``replay.py``              ``backprobe.replay``; ``start.py`` its inputs, ``graph_task.py`` the
                           schedule, ``runner.py`` one node, ``rules.py`` replacements of nodes,
                           ``nested.py`` backwards inside nodes, ``results.py`` results,
                           ``parity.py`` comparison with the engine and float64
========================== ====================================================================
"""
