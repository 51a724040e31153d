"""Tables, pages and figures made from records. Nothing here trains or needs torch."""
