"""Analyses: probability gaps, misclassification ranks, embeddings, histograms, and verdicts on published figures."""

from pclc.analysis.claims import CHECKS, Finding
from pclc.analysis.confusion import ConfusionResult, confusion
from pclc.analysis.embedding import EmbeddingResult, embed, embed_model
from pclc.analysis.gaps import GapResult, gap_summary, mean_gaps, probability_gap
from pclc.analysis.histograms import HistogramResult, histograms, loss_and_margin
from pclc.analysis.ranks import RanksResult, misclassification_ranks, rank_of, ranks_over_eps
from pclc.analysis.rows import write_csv
from pclc.analysis.verdict import Verdict, judge, judge_contrast
from pclc.evaluation.statistics import student_quantile

__all__ = [
    "CHECKS",
    "ConfusionResult",
    "EmbeddingResult",
    "Finding",
    "GapResult",
    "HistogramResult",
    "RanksResult",
    "Verdict",
    "confusion",
    "embed",
    "embed_model",
    "gap_summary",
    "histograms",
    "judge",
    "judge_contrast",
    "loss_and_margin",
    "mean_gaps",
    "misclassification_ranks",
    "probability_gap",
    "rank_of",
    "ranks_over_eps",
    "student_quantile",
    "write_csv",
]
