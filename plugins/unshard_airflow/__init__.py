"""Airflow's side of unshard: operators, triggers, three DAGs per task file. Thin: units do the work."""
