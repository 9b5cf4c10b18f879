"""Epochs: which registry version and punctuation one micro-batch of one ring uses, fixed once.

For a source of penstock's own, an epoch also says which part of the source the micro-batch reads:
the source's offset in Spark's log is just the epoch's number. For a DataFrame that a user handed
over, Spark decides what to read and the epoch is keyed by Spark's batch id. Either way the epoch
is in the registry before anybody acts on it; a replay after a crash finds the same one.

Tasks report what they saw per epoch. Reports are absorbed after the epoch's results are delivered,
in order and once, so counters survive a crash without counting a replayed micro-batch twice.
"""

from penstock.runtime.epochs.keeper import EpochKeeper
from penstock.runtime.epochs.reports import KeptRows, Report, Spent
from penstock.runtime.epochs.state import RingEpochs

__all__ = ["EpochKeeper", "KeptRows", "Report", "RingEpochs", "Spent"]
