"""Derived streams between rings: bounded queues of Arrow batches in nodes, with upstream backup."""
