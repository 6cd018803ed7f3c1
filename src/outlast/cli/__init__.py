"""The command line: one module for each group of verbs, each imported only when it is used."""
