"""The folder at the start of ``PYTHONPATH`` of child processes: its ``sitecustomize`` runs before any code of
theirs.
"""
