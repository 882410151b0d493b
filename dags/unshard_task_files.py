"""Shows the errors of invalid task files in Airflow's list of import errors. It has no DAG.

Airflow parses this file because it contains the words airflow and dag. The errors are apart from unshard_dags.py,
because Airflow hides all DAGs of a file with an import error.
"""

from unshard_airflow.files import refuse_invalid

refuse_invalid()
