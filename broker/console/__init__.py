"""The console in the browser: rates, hosts and their lines. It only reads."""
