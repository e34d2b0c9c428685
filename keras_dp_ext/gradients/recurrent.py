"""Recurrent layers: weights inside a while loop, made visible to the rules."""


def unfold_loops(losses, variables):
    return losses
