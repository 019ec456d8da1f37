"""The process that imports torch once, and the processes that it forks for jobs."""
