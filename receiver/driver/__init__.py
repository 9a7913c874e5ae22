"""The driver's side: each partition claimed, planned, run as jobs, committed."""
