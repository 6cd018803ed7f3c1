"""From the bytes that a command printed to the text that a reader gets.

The one way: source (`storage.output`) → cleaning (`cleaner`) → redaction (`redaction`) → line filter (`line_filter`) →
budget (`head_tail`). `text_stream` joins the middle stages, `reader` reads a selected part of a task through all of
them. `first_error` searches the text for what explains a failure.
"""
