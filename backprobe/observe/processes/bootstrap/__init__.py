"""The folder that ``PYTHONPATH`` of child processes begins with.

Its ``sitecustomize`` runs before any code of the child.
"""
