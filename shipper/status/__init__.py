"""The status, metrics, health and checks of an agent. Changes nothing."""
