"""Models that nobody here wrote: do they train, are they right, what do they cost?

Makes docs/models.md; see `benchmarks.third_party.__main__`.
"""
