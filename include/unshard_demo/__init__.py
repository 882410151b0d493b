"""The demo: private servers, a writer, Airflow and Spark on loopback; the tests use its servers."""
