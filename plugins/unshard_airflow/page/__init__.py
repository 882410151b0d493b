"""The page `unshard` in Airflow's navigation: the state of tasks and locks, and forms for commands.

HTML from the server, shown by Airflow in an iframe; a script refreshes it and draws the charts. Airflow does not
protect the routes of a plugin, so every route here asks Airflow's auth manager:

    see  a task   users who may read its DAG of locks
    act  on it    users who may clear task instances of that DAG: clearing `unlock` is the same command

| module | content |
|---|---|
| `mount` | imports the rest at the first request, in the API server only |
| `site` | the interface to Airflow; everything that may change with a release of Airflow |
| `guard` | checks that a POST comes from one of our forms: token, origin |
| `audit` | finds who cleared a task, in Airflow's audit log |
| `service` | reads tasks and locks, and issues commands |
| `pages` | the answer of each route: a template and its values |
| `html` | renders a template without values of rows and secrets of statements |
| `jsonapi` | the JSON API |
| `routes` | the routes |

`static` has the style, `page.js`, and two libraries with their licences: idiomorph, which changes only the parts of a
page that differ, and uPlot, which draws the charts.
"""
