"""The command line: one thin file a command, the work is done by the packages below."""

from pclc.cli.app import main

__all__ = ["main"]
