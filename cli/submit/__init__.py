"""`speechmill submit`: many texts from files to audio files, continued wherever it stopped."""
