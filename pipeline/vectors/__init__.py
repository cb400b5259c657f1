"""What retrieval models are given of images and of sentences: pictures, vectors of images, vectors of sentences."""
