"""What is kept and what goes: backups, removals, and room for new lines."""
