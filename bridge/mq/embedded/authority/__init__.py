"""The authorization service of the embedded queue manager: authority records, and who may do what by them."""
