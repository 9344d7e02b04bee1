"""Tide tables from harmonic constants."""

from .model import Constituent, Harbour, level

__all__ = ["Constituent", "Harbour", "level"]
