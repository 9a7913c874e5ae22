"""What an agent reports of itself: status, metrics, health, checks. Changes nothing."""
