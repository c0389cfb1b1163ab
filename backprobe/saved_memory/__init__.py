"""What a graph keeps for its backward, and who else holds it."""
