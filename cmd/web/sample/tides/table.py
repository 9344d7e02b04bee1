"""Highs and lows of one day."""

import datetime

from .model import level

EPOCH = datetime.datetime(2000, 1, 1)
STEP = 1 / 60  # hours


def extremes(harbour, day):
    """Yield (datetime, metres, "high" or "low") in order.

    TODO: refine between steps; a minute is coarse for spring tides.
    """
    start = (datetime.datetime.combine(day, datetime.time()) - EPOCH).total_seconds() / 3600
    before, here = level(harbour, start - STEP), level(harbour, start)
    for i in range(24 * 60):
        t = start + i * STEP
        after = level(harbour, t + STEP)
        if before < here >= after:
            yield EPOCH + datetime.timedelta(hours=t), here, "high"
        elif before > here <= after:
            yield EPOCH + datetime.timedelta(hours=t), here, "low"
        before, here = here, after
