"""What a job may ask for besides a verdict: benchmarks, bisection, debug folders, graphs, minified scripts, generated
cases."""
