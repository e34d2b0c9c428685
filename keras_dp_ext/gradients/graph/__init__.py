"""Reading the traced graph: ops, where weights meet data, views, loops."""
