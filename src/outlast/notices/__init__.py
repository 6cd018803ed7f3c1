"""What somebody is told of tasks: found, put into words, claimed, delivered. See docs/notices.md."""
