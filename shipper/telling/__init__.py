"""What an agent tells the world of itself: status, metrics, health, checks. Changes nothing."""
