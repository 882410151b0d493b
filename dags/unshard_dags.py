"""Three DAGs per task file: unshard_full__<task>, unshard_sync__<task>, unshard_ddl__<task>.

Airflow looks for the word dag in this file; the DAGs are built in plugins/unshard_airflow.
"""

from unshard_airflow.files import all_dags

globals().update(all_dags())
