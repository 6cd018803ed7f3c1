"""Reading bash: words, expansions, simple commands and the grammar, checked against two other readers."""
