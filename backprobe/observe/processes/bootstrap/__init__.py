"""A folder that children have in ``PYTHONPATH`` until they begin: ``sitecustomize`` runs before anything of theirs."""
