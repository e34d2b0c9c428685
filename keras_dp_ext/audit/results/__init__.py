"""What audits return: what is claimed, what was measured, and how they compare."""
