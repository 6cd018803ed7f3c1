"""Tasks as text for people and as JSON for programs; what the command line and the servers share."""
