"""Classifiers by name, with their weights in files."""

from pclc.models import architectures as _architectures  # noqa: F401  # registers the models
from pclc.models.config import ModelConfig
from pclc.models.normalize import Normalize
from pclc.models.registry import create_model, model_names, register_model
from pclc.models.weights import load_model, load_weights, save_model

__all__ = [
    "ModelConfig",
    "Normalize",
    "create_model",
    "load_model",
    "load_weights",
    "model_names",
    "register_model",
    "save_model",
]
