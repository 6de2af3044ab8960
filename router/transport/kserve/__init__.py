"""The KServe v2 door: Triton's own gRPC service on the router's port, for callers who were written for TensorRT-LLM behind a Triton."""
