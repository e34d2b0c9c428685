"""Data sets, embedded or read from a folder."""
