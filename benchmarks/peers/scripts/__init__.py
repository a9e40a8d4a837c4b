"""Programs of the peers that are libraries, for the Python that has them: `python SCRIPT FIELD.json run|push WORD`."""
