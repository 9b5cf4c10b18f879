"""JOIN rings: tuples of all inputs by hash bucket, and the stateful operator that combines them."""
