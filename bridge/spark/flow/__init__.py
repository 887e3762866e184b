"""Pipelines of the configuration file: sources, Spark SQL and destinations put together, checked, and run."""
