"""Airflow's side of unshard: operators, a sensor, three DAGs per task file. Thin: units do the work."""
