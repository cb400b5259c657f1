"""What is measured of a trained retrieval model beside its recall; each analysis is a file."""
