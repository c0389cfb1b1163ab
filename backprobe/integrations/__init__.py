"""Callbacks for training frameworks, one module each: a framework is imported only by its own module."""
