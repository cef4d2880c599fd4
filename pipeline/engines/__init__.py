"""Engines that do an import's work on several cores or machines."""
