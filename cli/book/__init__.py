"""`speechmill book`: a book in, an audio book out, continued wherever it stopped."""
