"""The DAGs of each task file: unshard_full__<task>, unshard_sync__<task>, unshard_ddl__<task>, unshard_join__<task>.

Airflow parses this file because it contains the word dag; plugins/unshard_airflow builds the DAGs.
"""

from unshard_airflow.files import all_dags

globals().update(all_dags())
