"""What can be done to a world, a module for each family; `catalogue` has them all."""
