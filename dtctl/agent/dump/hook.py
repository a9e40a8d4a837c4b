"""What is put into the Python of a trainer when it starts, so that it can be asked for its stacks later."""

from __future__ import annotations

import os

SITE = os.path.join(os.path.dirname(os.path.realpath(__file__)), "site")
"""Comes first in the PYTHONPATH of trainers."""

SIGNAL = 57
"""As site/sitecustomize.py has it, which does its work when it is imported, and so never is here."""

FILE = "stacks"
"""In the attempt's directory; the same there."""
