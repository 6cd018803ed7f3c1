"""The little that a guard, or a short call, needs of `json`, `signal`, `socket`, `sqlite3` …

Those bring `re`, `enum` or `datetime` along: two thirds of the time in which a nursery starts, and
memory that each guard has for itself, because Python writes into every object that it looks
at. Names and meanings are the same.
"""
