"""The losses: functions first, modules as thin shells, the fused operation behind them."""

from pclc.losses.modules import ComplementEntropy, GuidedComplementEntropy, PCLoss

__all__ = ["ComplementEntropy", "GuidedComplementEntropy", "PCLoss"]
