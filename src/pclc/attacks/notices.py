"""Warnings of attacks; a filter on a category silences it, or turns it into an error."""


class AttackWarning(UserWarning):
    """Something that makes an attack's result worth less than it seems."""


class ZeroGradientWarning(AttackWarning):
    """Some gradients were exactly zero, and the attack stood still there: that it fails is no evidence."""


class ProbabilityWarning(AttackWarning):
    """The model seems to return probabilities where logits are expected."""


class UnreachableWarning(AttackWarning):
    """The steps together are too short to reach the edge of the ball."""


class TrainModeWarning(AttackWarning):
    """The model is a function that calls a module in training mode, where dropout and BatchNorm weaken an attack."""


class RandomModelWarning(AttackWarning):
    """Passes over the same images differ: an attack that expects one answer is too weak for such a model."""


class DynamicModelWarning(AttackWarning):
    """The model computes derivatives in its forward pass, as models do that optimise at test time."""


class SquareStrongerWarning(AttackWarning):
    """Square fooled examples that the attacks with gradients did not: gradients may be masked."""
