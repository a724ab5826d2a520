"""The processes that do the work: stage loops, the farm's own stages, Celery tasks and the supervisor."""
