"""What a receiver tells the world of itself. Changes nothing."""
