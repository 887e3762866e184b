"""The data source `mqtt`: topic filters of a broker, or of the bridge, as rows, and rows published."""
