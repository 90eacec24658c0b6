"""What turns pictures into the patches that a vision tower reads."""
