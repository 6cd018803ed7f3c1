"""Notices about tasks: found, put into words, claimed, delivered. See docs/notices.md."""
