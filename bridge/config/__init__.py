"""The bridge's configuration: typed models of the YAML file, and error reports with file, line and column."""
