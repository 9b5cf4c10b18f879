"""The stages that a worker has at hand, by ring."""

from __future__ import annotations

from functools import partial

from penstock.plan.codec import composition_from, stream_from
from penstock.runtime.config import StageConfig, owner_of
from penstock.runtime.following.stage import FollowingStage
from penstock.runtime.joining.chain_stage import ChainStage
from penstock.runtime.joining.input_stage import PackedStage
from penstock.runtime.region_tables import placing_of
from penstock.runtime.stage import Stage
from penstock.runtime.versions import KeptByRing

_stages: KeptByRing[Stage] = KeptByRing()


def stage_for(config: StageConfig, version: int) -> Stage:
    """The stage of a ring at a registry version."""
    return _stages.at_version(config, version, partial(_new_stage, config))


def _new_stage(config: StageConfig) -> Stage:
    composition, stream = composition_from(config.composition), stream_from(config.stream)
    _, number = owner_of(config.ring)
    if number is None:
        own = Stage if composition.following is None else FollowingStage
        alone = own.of(composition, stream, placing_of(config, composition))
        alone.watches = config.watches
        return alone
    kind = PackedStage if composition.keys else ChainStage
    stage = kind.of(composition, stream)
    stage.number = number
    return stage
