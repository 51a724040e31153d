"""The articles' tables and sentences, with the findings on each: `normlab documents`."""
