"""Export of statistics and findings to experiment trackers: TensorBoard, Weights & Biases, MLflow, trackio."""
