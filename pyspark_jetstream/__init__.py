"""Makes the data source known to Spark by its name: pyspark imports every top-level pyspark_* package."""
