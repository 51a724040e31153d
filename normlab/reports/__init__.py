"""What is made of records: figures. Nothing here trains, and nothing here needs torch."""
