"""`outlast serve`: a web page, and a JSON API beneath it, on loopback.

serve ─▶ access ─▶ routes ─▶ handlers ─▶ Shell
(socket) (who may)  (what)    (does it)
                              live ─▶ viewers: what changes, by event
"""
