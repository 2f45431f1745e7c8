"""OpenVINO on the processor, in float32 or bfloat16."""
