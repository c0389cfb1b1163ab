"""A run as one HTML page: its data document, and how the page reaches a reader. Never imports torch."""
