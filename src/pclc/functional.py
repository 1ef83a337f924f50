"""The losses as functions: ``pclc.functional.pc_loss`` beside ``torch.nn.functional.cross_entropy``."""

from pclc.losses.functional import complement_entropy, guided_complement_entropy, pc_loss

__all__ = ["complement_entropy", "guided_complement_entropy", "pc_loss"]
