"""Rings that follow objects through regions: ENTER, LEAVE, DWELL."""
