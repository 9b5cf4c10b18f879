"""Text to AST and back."""

from penstock.language.parser import parse
from penstock.language.render import render
from penstock.language.tokens import is_complete

__all__ = ["is_complete", "parse", "render"]
