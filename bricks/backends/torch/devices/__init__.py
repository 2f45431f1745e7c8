"""The devices on which PyTorch runs calls: the processor, and a GPU (:mod:`.device`)."""
