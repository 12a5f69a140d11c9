"""Methods whose form contains the pretrained weights of the layer, and LoRA-FA beside them."""
