"""A run as one HTML page: the document that it shows, and how it gets to a reader. Never imports torch."""
