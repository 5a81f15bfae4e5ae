"""NVIDIA's GPUs, through the driver alone: no toolkit and no framework is needed to ask."""
