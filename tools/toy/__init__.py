"""The generator of the embedded corpus. `python -m tools.toy` writes the package's data files."""
