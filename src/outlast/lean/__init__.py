"""The little that a guard needs of `json`, `signal` and `socket`, straight from the C modules below them.

Those bring `re` and `enum` along: two thirds of the time in which a nursery starts, and
memory that each guard has for itself, because Python writes into every object that it looks
at. Names and meanings are the same.
"""
