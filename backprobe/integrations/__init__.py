"""Callbacks for training frameworks, a module for each: a framework is imported with its module, and not before."""
