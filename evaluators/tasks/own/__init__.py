"""Tasks of one's own: a folder with `task.toml` and a file with a plain function.

- `reading.read_task(selector)`, `reading.recognizes(path)`
- `template.write_task(folder)`: a commented one to begin with
"""
