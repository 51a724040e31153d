"""Models that normlab did not build: any `nn.Module`, examined on batches of its own."""
