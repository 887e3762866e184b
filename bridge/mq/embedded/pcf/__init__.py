"""PCF commands of the embedded queue manager: those that the bridge itself sends."""
