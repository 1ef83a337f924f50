"""The version, where every layer can read it without importing the others."""

__version__ = "0.1.0"
