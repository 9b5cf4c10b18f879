"""Rings: opened, started and paced, watched, split and merged, isolated from failing queries."""
