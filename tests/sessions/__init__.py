"""What a session remembers: tables, properties against one long-lived bash, faults."""
