"""The dashboard: serves runs to browsers and takes orders from them."""
