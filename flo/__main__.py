"""`python -m flo`, for when the console script is not on the path."""

from .cli import app

app(prog_name="flo")
