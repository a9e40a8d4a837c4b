"""What real agents tell of themselves and of their tasks."""
