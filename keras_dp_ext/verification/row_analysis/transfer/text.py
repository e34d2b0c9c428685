"""Text: pieces of strings, whose number depends on the example."""
