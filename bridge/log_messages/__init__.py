"""Log messages: their identifiers, explanations and limits."""
