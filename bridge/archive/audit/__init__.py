"""The audit: was all that came in delivered, once, in time, and in order?"""
