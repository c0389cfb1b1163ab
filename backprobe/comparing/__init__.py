"""Two recorded runs side by side: paired, and the first op that really differs named."""
