"""What an operator sees of a broker: status, hosts, top, tail, get, events, check, and metrics. Changes nothing."""
