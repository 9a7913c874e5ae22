"""What an operator sees of a broker. Changes nothing."""
