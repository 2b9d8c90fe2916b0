"""The figures that READMEs and notebooks may show, by name: pure functions from a result to Markdown.

A block (more than one line) ends with the stamp of its result. A value is a few words for the middle of a sentence; the
table it belongs to is nearby and has the stamp. In a document: `<!-- figures: users_table ten_line_server 01 -->`.
"""

from . import classifiers, costs, load, memory, paged, peers  # register theirs
from .registry import RENDERERS

__all__ = ["RENDERERS", "classifiers", "costs", "load", "memory", "paged", "peers"]
