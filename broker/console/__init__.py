"""The console in the browser: what flows, which host is silent, what it just said. Changes nothing."""
