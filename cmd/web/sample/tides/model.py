"""The harmonic model: a level is a mean plus a sum of cosines."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Constituent:
    name: str
    amplitude: float  # metres
    period: float  # hours
    phase: float  # degrees


@dataclass(frozen=True)
class Harbour:
    name: str
    mean: float  # metres above chart datum
    constituents: tuple


def level(harbour, hours):
    """Level in metres, `hours` after 2000-01-01 00:00 UTC."""
    total = harbour.mean
    for c in harbour.constituents:
        total += c.amplitude * math.cos(2 * math.pi * hours / c.period - math.radians(c.phase))
    return total
