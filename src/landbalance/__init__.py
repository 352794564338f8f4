"""Land-cover maps from satellite scenes, trained on unequal machines."""

__version__ = "0.1.0"
