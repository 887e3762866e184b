"""The verbs of the MQI at the embedded queue manager, as an application uses them.

A file for each: `mqopen`, `mqput`, `mqget`, `mqsub`, `mqinq`, `mqstat`; `application` puts them together over `handles`.
Beside them stands what the verbs need of messages: conversion, logical messages, options.
"""
