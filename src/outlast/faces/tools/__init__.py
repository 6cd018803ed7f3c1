"""Tools for models: one set of operations, under the names of several designs (`profiles`)."""
