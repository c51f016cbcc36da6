"""Everything that runs models: tree tensors, draft and target, verification, caches and the decode loop."""
