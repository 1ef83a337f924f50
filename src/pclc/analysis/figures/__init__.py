"""Figures of the analyses: each is written as SVG and PNG, with its numbers as CSV beside it."""

from pclc.analysis.figures.confusion import plot_confusion
from pclc.analysis.figures.embedding import plot_embeddings
from pclc.analysis.figures.gaps import plot_gaps
from pclc.analysis.figures.histograms import plot_histograms
from pclc.analysis.figures.ranks import plot_ranks
from pclc.analysis.figures.tradeoff import plot_curves, plot_tradeoff

__all__ = [
    "plot_confusion",
    "plot_curves",
    "plot_embeddings",
    "plot_gaps",
    "plot_histograms",
    "plot_ranks",
    "plot_tradeoff",
]
