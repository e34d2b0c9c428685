"""Pipelines that draw examples as the analysis assumes."""
