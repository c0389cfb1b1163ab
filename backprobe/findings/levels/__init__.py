"""Rules for ``--check levels``: measured levels that say that a run diverges or trains badly."""
