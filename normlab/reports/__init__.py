"""Tables, pages and figures made from records, without training and without torch."""
