"""What is kept beside a broker or taken out of it: backups, and the removal of messages."""
