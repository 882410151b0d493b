"""The demo: private servers, a writer, Airflow and Spark on loopback. The tests use its servers too."""
