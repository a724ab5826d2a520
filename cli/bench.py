"""`speechmill bench`: figures, never asserts."""

import typer

app = typer.Typer(help="Measure.", no_args_is_help=True)
