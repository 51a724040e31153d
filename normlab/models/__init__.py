"""Models (Transformers, recurrent networks, ResNet, ViT), their layers, decoding and folding."""
