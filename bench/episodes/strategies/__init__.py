"""What a sensible model does with each set of tools, judging by the descriptions of these tools.

A module has one function for each part of an episode. A function may look at the replies it gets. It expects some
words that such programs usually print, the same in all modules ("ready on", "build #", "y/n", "artifact"); it does not
know what will happen to the agent. All follow the same habits:

- run the command as the user has named it, unless the tool's description says that this goes wrong;
- use the tool's own way to run something in the background if it has one, otherwise the shell's;
- where the description says that long output is cut, let it be cut and look closer afterwards; where it says
  nothing, keep long output in a file and look at a part;
- if a reply says that something still runs, wait with the longest wait that the tools offer.
"""
