"""Derived streams: results of a ring that go through the exchange into other rings."""
