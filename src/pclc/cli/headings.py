"""Headings under which options stand in the help of several commands."""

from functools import partial

import typer

on_model = partial(typer.Option, rich_help_panel="Model and data")
on_machine = partial(typer.Option, rich_help_panel="Machine and output")
