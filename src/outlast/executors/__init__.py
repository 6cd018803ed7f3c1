"""Where a task runs: one seam of six verbs, and one module for each kind of place."""
