"""Tables, pages and figures made from records, without training or torch."""
