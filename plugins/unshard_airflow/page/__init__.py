"""The page `unshard` in Airflow's navigation: what the commands know of tasks, and orders to them.

Plain HTML made on the server, no script at all, shown by Airflow in an iframe. Airflow itself does not protect
what a plugin mounts, so every route here asks Airflow's auth manager:

    see  a task   whoever may read its DAG of locks
    act  on it    whoever may clear task instances of that DAG: clearing `unlock` is the same order

| module | what it decides |
|---|---|
| `mount` | imports the rest at the first request, in the API server only |
| `site` | what the page needs of Airflow; everything that may move with a release of Airflow |
| `guard` | whether a POST comes from a form of ours: token, origin |
| `audit` | who cleared a task, by Airflow's audit log |
| `desk` | what is read of tasks and locks, and the orders given |
| `marks` | which words of two statements differ |
| `shown` | from values to HTML; no value of a row, no secret of a statement |
| `app` | the routes |
"""
