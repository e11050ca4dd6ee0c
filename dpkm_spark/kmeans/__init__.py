"""Pure numpy kernels: sphere-packed starts and weighted Lloyd."""
