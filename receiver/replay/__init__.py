"""Writes lines of the streams again; `lines` reads them, also for `logreceiver verify`."""
