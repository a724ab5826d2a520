"""Named speakers, and the consent of those who are heard."""
