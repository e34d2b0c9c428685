"""Before the first update: does the step do what its epsilon says?"""
