"""The stages that a worker has at hand, by ring."""

from __future__ import annotations

from penstock.plan.codec import composition_from, slot_from, stream_from
from penstock.runtime.config import StageConfig, owner_of
from penstock.runtime.joining.input_stage import InputStage
from penstock.runtime.service import ask
from penstock.runtime.stage import Stage

_stages: dict[str, Stage] = {}


def stage_for(config: StageConfig, version: int) -> Stage:
    """The stage of a ring at a registry version; workers keep the last and fetch only changes."""
    stage = _stages.pop(config.ring, None)  # comes back when it is whole again
    if stage is None or stage.version > version:
        stage = _new_stage(config)
    if stage.version < version:
        message = {"ring": config.ring, "since": stage.version, "version": version}
        changes = ask(config.address, "slots", message)
        stage.change(version, [slot_from(text) for text in changes["added"]], changes["dropped"])
    _stages[config.ring] = stage
    return stage


def _new_stage(config: StageConfig) -> Stage:
    composition, stream = composition_from(config.composition), stream_from(config.stream)
    _, number = owner_of(config.ring)
    if number is None:
        return Stage.of(composition, stream)
    stage = InputStage.of(composition, stream)
    stage.number = number
    return stage
