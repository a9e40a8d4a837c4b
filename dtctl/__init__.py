"""dtctl starts, watches, mends and stops distributed training on plain SSH machines."""

__version__ = "0.1.0"
